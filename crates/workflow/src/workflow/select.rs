//! The first of several calls.

use std::{
    future::Future,
    panic::Location,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use windlass_model::{
    Payload,
    journal::{CallEvent, CallKind},
};

use super::{
    core::Core,
    fault::{diverged, source_location},
    journal::CallEnd,
};

/// The first of several calls; `.await` returns what that one returned.
#[must_use = "nothing is called until this is awaited"]
pub struct Select<R> {
    core: Arc<Core>,
    name: String,
    key: Option<String>,
    line: &'static Location<'static>,
    race: R,
}

impl<R> Select<R> {
    pub(super) fn new(core: &Arc<Core>, name: &str, line: &'static Location<'static>, race: R) -> Select<R> {
        Select { core: Arc::clone(core), name: name.to_owned(), key: None, line, race }
    }

    /// Distinguishes it from other calls of the same name, e.g. in a loop.
    pub fn key(mut self, key: impl ToString) -> Self {
        self.key = Some(key.to_string());
        self
    }
}

/// Several calls of which the first to end is wanted: a tuple of two to six.
pub trait Race: Unpin {
    /// What the first one returned, and which one it was.
    type Won;

    /// The index and the result of the first that has ended.
    #[doc(hidden)]
    fn poll_race(&mut self, cx: &mut Context<'_>) -> Poll<(usize, Self::Won)>;
}

macro_rules! race {
    ($name:ident, $about:literal, $($place:tt $variant:ident),+) => {
        #[doc = $about]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name<$($variant),+> {
            $(#[doc = concat!("Number ", stringify!($place), ", counted from 0.")] $variant($variant),)+
        }

        impl<$($variant: Future + Unpin),+> Race for ($($variant,)+) {
            type Won = $name<$($variant::Output),+>;

            fn poll_race(&mut self, cx: &mut Context<'_>) -> Poll<(usize, Self::Won)> {
                $(if let Poll::Ready(result) = Pin::new(&mut self.$place).poll(cx) {
                    return Poll::Ready(($place, $name::$variant(result)));
                })+
                Poll::Pending
            }
        }
    };
}

race!(First2, "Which of two calls was first, and what it returned.", 0 A, 1 B);
race!(First3, "Which of three calls was first, and what it returned.", 0 A, 1 B, 2 C);
race!(First4, "Which of four calls was first, and what it returned.", 0 A, 1 B, 2 C, 3 D);
race!(First5, "Which of five calls was first, and what it returned.", 0 A, 1 B, 2 C, 3 D, 4 E);
race!(First6, "Which of six calls was first, and what it returned.", 0 A, 1 B, 2 C, 3 D, 4 E, 5 F);

impl<R: Race> Future for Select<R> {
    type Output = R::Won;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R::Won> {
        let this = self.get_mut();
        match this.race.poll_race(cx) {
            Poll::Ready((place, won)) if this.won(place) => Poll::Ready(won),
            _ => Poll::Pending,
        }
    }
}

impl<R> Select<R> {
    /// Records which call was first. If the journal says another one, the workflow has diverged.
    fn won(&self, place: usize) -> bool {
        let now = self.core.now();
        let mut state = self.core.lock();
        let state = &mut *state;
        let ident = match state.check_call(CallKind::Select, &self.name, self.key.as_deref(), self.line) {
            Ok(ident) => ident,
            Err(fault) => {
                state.code.fault.get_or_insert(fault);
                return false;
            }
        };
        let recorded = state.journal.calls.of(&ident);
        if let Some((_, CallEnd::Done(payload))) = recorded.and_then(|recorded| recorded.end.clone()) {
            let before = recorded.and_then(|recorded| recorded.line.clone()).unwrap_or_default();
            state.journal.mark_reached(&ident);
            let recorded = serde_json::from_slice::<usize>(&payload.bytes).unwrap_or(place);
            if recorded != place {
                state.code.fault.get_or_insert(diverged(&format!(
                    "the first call of {:?} to end is another one than its journal says\n  recorded:  number {recorded} at {before}\n  \
                     attempted: number {place} at {}\nKeep the order of the calls, or give the select another name.",
                    self.name,
                    source_location(self.line),
                )));
                return false;
            }
            return true;
        }
        let payload = Payload::json(place.to_string().into_bytes());
        let entry = state.entry_of(
            &ident,
            CallKind::Select,
            CallEvent::Done,
            Some(source_location(self.line)),
            payload,
            now,
        );
        state.pending.push(entry);
        true
    }
}
