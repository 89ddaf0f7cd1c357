//! Calls that start when they are made: children, sleeps and waits for signals.
//!
//! Their futures are lazy like all futures, but they have no body that borrows from the code, so the driver can begin them: after
//! each poll of the code it registers the calls that were made in it and not yet awaited. A call that is dropped and was never
//! awaited is a fault of the code, unless it is detached.

use std::{
    panic::Location,
    sync::{Arc, Mutex, MutexGuard},
};

use windlass_model::journal::CallKind;

use super::{
    call::{CallSpec, Start},
    core::Core,
    fault::{misuse, nested, source_location},
};
use crate::Child;

/// A call that was made. Its future may still change it until it starts.
pub(super) struct MadeCall {
    pub(super) name: String,
    pub(super) key: Option<String>,
    /// Taken when the call starts.
    pub(super) start: Option<MadeStart>,
    /// Whether nobody waits for its end.
    pub(super) detached: bool,
    call_kind: CallKind,
    line: &'static Location<'static>,
    /// The call, once it has started; `None` also if it was refused.
    pub(super) call: Option<usize>,
}

/// How a call starts that was made.
pub(super) enum MadeStart {
    Wait(Start),
    /// A child, whose description may still change.
    Child(Box<Child>),
}

/// A call that was made, shared by its future and the driver.
#[derive(Clone)]
pub(super) struct Made(Arc<Mutex<MadeCall>>);

impl Made {
    pub(super) fn lock(&self) -> MutexGuard<'_, MadeCall> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Starts the call, if it has not been started. Returns the open call, if it was not refused, and whether it was open before.
    pub(super) fn start(&self, core: &Core) -> (Option<usize>, bool) {
        let mut made = self.lock();
        let Some(start) = made.start.take() else { return (made.call, true) };
        let start = match start {
            MadeStart::Wait(start) => start,
            MadeStart::Child(child) => {
                let services = &core.services;
                let job = child.into_job(services.ids.job());
                let job = job.and_then(|job| services.codecs.encoded(job).map_err(|error| error.to_string()));
                match job {
                    Ok(job) => Start::Child(Box::new(job)),
                    Err(why) => {
                        core.fault(misuse(format!("the child {:?}: {why}", made.name)));
                        return (None, false);
                    }
                }
            }
        };
        let (call_kind, name, line) = (made.call_kind, made.name.as_str(), made.line);
        let call =
            CallSpec { call_kind, name, key: made.key.as_deref(), line, start, detached: made.detached };
        made.call = core.register(call);
        (made.call, false)
    }
}

impl Core {
    /// Makes a call.
    pub(super) fn make_call(
        &self,
        call_kind: CallKind,
        name: &str,
        line: &'static Location<'static>,
        start: MadeStart,
    ) -> Made {
        let mut start = Some(start);
        let inside = self.lock().code.polled_step.clone();
        if let Some(inside) = inside {
            self.fault(nested(&format!("{call_kind} {name:?} at {}", source_location(line)), &inside));
            start = None;
        }
        let (name, key) = (name.to_owned(), None);
        let made = MadeCall { name, key, start, detached: false, call_kind, line, call: None };
        let made = Made(Arc::new(Mutex::new(made)));
        self.made.lock().unwrap_or_else(|e| e.into_inner()).push(made.clone());
        made
    }

    /// Starts the calls that the code has made and not awaited.
    pub(super) fn start_made(&self) {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(|e| e.into_inner()));
        made.iter().for_each(|made| _ = made.start(self));
    }

    /// Notes that a call was dropped that was never awaited. The code may be ending with an error, which then counts.
    pub(super) fn note_unawaited(&self, call_kind: CallKind, line: &'static Location<'static>) {
        if std::thread::panicking() {
            return;
        }
        let state = &mut *self.lock();
        if !state.code.is_over {
            let detach = match call_kind {
                CallKind::Child => ", or `.detach()` it if nobody needs its result",
                _ => "",
            };
            let text = format!(
                "the {call_kind} that is made at {} is dropped and was never awaited: await it{detach}",
                source_location(line)
            );
            state.code.unawaited.get_or_insert(misuse(text));
        }
    }
}

/// Notes that a call was dropped that was never awaited.
pub(super) struct Unawaited {
    core: Arc<Core>,
    call_kind: CallKind,
    line: &'static Location<'static>,
    is_armed: bool,
}

impl Unawaited {
    pub(super) fn new(core: &Arc<Core>, call_kind: CallKind, line: &'static Location<'static>) -> Unawaited {
        Unawaited { core: Arc::clone(core), call_kind, line, is_armed: true }
    }

    /// Whether the call was not awaited.
    pub(super) fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// The call is awaited, or needs not be. Returns whether it was not before.
    pub(super) fn disarm(&mut self) -> bool {
        std::mem::replace(&mut self.is_armed, false)
    }
}

impl Drop for Unawaited {
    fn drop(&mut self) {
        if self.is_armed {
            self.core.note_unawaited(self.call_kind, self.line);
        }
    }
}
