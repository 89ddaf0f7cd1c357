//! Calls that wait: for a time, a signal, a condition or a child.

use std::{
    future::Future,
    marker::PhantomData,
    panic::Location,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use windlass_model::{Failure, Retry, journal::CallKind};

use super::{
    call::{AwaitedSignal, CallStatus, Moment, Start},
    call_retry::CallRetry,
    core::Core,
    journal::CallEnd,
    made::{Made, MadeStart, Unawaited},
    step::{RawStep, complete_if_true, decode_result, encode_result},
    step_cx::StepCx,
};
use crate::{
    Child, Kind,
    signal::{can_read, read},
};

/// A call without a body, whatever its type. It starts when it is made.
pub(super) struct RawWait {
    pub(super) core: Arc<Core>,
    line: &'static Location<'static>,
    made: Made,
    /// The open call, once it is awaited.
    call: Option<usize>,
    unawaited: Unawaited,
}

impl RawWait {
    pub(super) fn new(
        core: &Arc<Core>,
        call_kind: CallKind,
        name: &str,
        line: &'static Location<'static>,
        start: MadeStart,
    ) -> RawWait {
        let made = core.make_call(call_kind, name, line, start);
        let unawaited = Unawaited::new(core, call_kind, line);
        RawWait { core: Arc::clone(core), line, made, call: None, unawaited }
    }

    pub(super) fn keyed(self, key: String) -> RawWait {
        self.made.lock().key = Some(key);
        self
    }

    /// Lets the call run without anybody waiting for its end.
    fn detach(mut self) {
        self.unawaited.disarm();
        self.made.lock().detached = true;
    }
}

impl Future for RawWait {
    type Output = (i32, CallEnd);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(i32, CallEnd)> {
        let this = self.get_mut();
        if this.unawaited.disarm() {
            let (call, was_open) = this.made.start(&this.core);
            this.call = call;
            if was_open {
                // It may have ended already. It is not ready when it is first polled, so that a `select!` polls the others too.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        let Some(id) = this.call else { return Poll::Pending };
        match this.core.poll_call(id, cx) {
            CallStatus::Ready(seq, ending) => {
                this.call = None;
                Poll::Ready((seq, ending))
            }
            _ => Poll::Pending,
        }
    }
}

impl Drop for RawWait {
    fn drop(&mut self) {
        let started = {
            let mut made = self.made.lock();
            if made.detached {
                return;
            }
            made.start = None;
            made.call
        };
        let call = if self.unawaited.is_armed() { started } else { self.call.take() };
        if let Some(id) = call {
            self.core.abandon_call(id);
        }
    }
}

/// Name and key of a call, for calls with a default name.
macro_rules! named {
    ($raw:ident) => {
        /// Sets the name. Each call of a workflow needs its own.
        pub fn name(mut self, name: impl Into<String>) -> Self {
            self.$raw.call.name = name.into();
            self
        }

        /// Distinguishes it from other calls of the same name, e.g. in a loop.
        pub fn key(mut self, key: impl ToString) -> Self {
            self.$raw.call.key = Some(key.to_string());
            self
        }
    };
}

/// The same for calls that start when they are made.
macro_rules! named_made {
    () => {
        /// Sets the name. Each call of a workflow needs its own.
        pub fn name(self, name: impl Into<String>) -> Self {
            self.raw.made.lock().name = name.into();
            self
        }

        /// Distinguishes it from other calls of the same name, e.g. in a loop.
        pub fn key(self, key: impl ToString) -> Self {
            self.raw.made.lock().key = Some(key.to_string());
            self
        }
    };
}

/// A durable sleep: it starts when it is made, and `.await` returns when it is over, whatever happens to the process meanwhile.
#[must_use = "a sleep that nobody awaits is an error of the workflow"]
pub struct Sleep {
    raw: RawWait,
}

impl Sleep {
    pub(super) fn new(core: &Arc<Core>, line: &'static Location<'static>, moment: Moment) -> Sleep {
        let start = MadeStart::Wait(Start::At(moment));
        Sleep { raw: RawWait::new(core, CallKind::Sleep, "sleep", line, start) }
    }

    named_made!();
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.raw).poll(cx).map(drop)
    }
}

/// A wait for a signal: it starts when it is made, and `.await` returns the signal's payload.
#[must_use = "a wait for a signal that nobody awaits is an error of the workflow"]
pub struct SignalWait<T> {
    raw: RawWait,
    result: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> SignalWait<T> {
    pub(super) fn new(core: &Arc<Core>, line: &'static Location<'static>, name: &str) -> SignalWait<T> {
        let awaited = AwaitedSignal { name: name.to_owned(), can_read: can_read::<T> };
        let start = MadeStart::Wait(Start::Signal { awaited, timeout: None });
        SignalWait { raw: RawWait::new(core, CallKind::Signal, name, line, start), result: PhantomData }
    }

    named_made!();

    /// Fails with the class `timeout` if no signal arrives in this time; it counts from when the workflow first reached the
    /// call.
    pub fn timeout(self, span: Duration) -> Self {
        if let Some(MadeStart::Wait(Start::Signal { timeout, .. })) = &mut self.raw.made.lock().start {
            *timeout = Some(span);
        }
        self
    }
}

impl<T> Unpin for SignalWait<T> {}

impl<T: DeserializeOwned> Future for SignalWait<T> {
    type Output = Result<T, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Failure>> {
        let this = self.get_mut();
        match Pin::new(&mut this.raw).poll(cx) {
            Poll::Ready((_, CallEnd::Done(payload))) => {
                Poll::Ready(read(&this.raw.core.services.codecs, &payload).map_err(|why| {
                    let name = this.raw.made.lock().name.clone();
                    let text = format!(
                        "the signal {name:?} that the journal holds cannot be read: {why}. It could when it was recorded: give \
                         the type back what it had, or fork the job from before this call"
                    );
                    Failure::stop(text).class("signal")
                }))
            }
            Poll::Ready((_, CallEnd::Failed { failure, .. })) => Poll::Ready(Err(failure)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// A wait until a condition holds; `.await` returns when it does.
#[must_use = "a condition is not checked until this is awaited"]
pub struct WaitUntil<'f> {
    raw: RawStep<'f>,
}

impl<'f> WaitUntil<'f> {
    pub(super) fn new<F, Fut>(
        core: &Arc<Core>,
        name: &str,
        line: &'static Location<'static>,
        mut condition: F,
    ) -> WaitUntil<'f>
    where
        F: FnMut() -> Fut + Send + 'f,
        Fut: Future<Output = Result<bool, Failure>> + Send + 'f,
    {
        let body = Box::new(move |_: StepCx| -> super::Boxed<'f, _> {
            let check = condition();
            Box::pin(async move { encode_result(&check.await?) })
        });
        let mut raw = RawStep::new(core, CallKind::WaitUntil, name, line, body);
        (raw.on_done, raw.retry, raw.every) =
            (complete_if_true, CallRetry::never(), Some(Duration::from_secs(60)));
        WaitUntil { raw }
    }

    named!(raw);

    /// How long after a check the next one follows: by default a minute.
    pub fn every(mut self, span: Duration) -> Self {
        self.raw.every = Some(span);
        self
    }

    /// Fails with the class `timeout` if the condition does not hold by then.
    pub fn timeout(mut self, span: Duration) -> Self {
        self.raw.call.within = Some(span);
        self
    }

    /// What follows when a check fails: by default the wait fails.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.raw.retry.set_policy(retry);
        self
    }
}

impl Unpin for WaitUntil<'_> {}

impl Future for WaitUntil<'_> {
    type Output = Result<(), Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Pin::new(&mut self.get_mut().raw).poll(cx).map(|(_, ending)| match ending {
            CallEnd::Done(_) => Ok(()),
            CallEnd::Failed { failure, .. } => Err(failure),
        })
    }
}

/// A wait until a condition holds, which is checked on every signal; `.await` returns what the condition returned.
#[must_use = "a condition is not checked until this is awaited"]
pub struct ContinueIf<'f, T> {
    raw: RawStep<'f>,
    result: PhantomData<fn() -> T>,
}

impl<'f, T: Serialize + DeserializeOwned> ContinueIf<'f, T> {
    pub(super) fn new<P, F, Fut>(
        core: &Arc<Core>,
        name: &str,
        line: &'static Location<'static>,
        mut condition: F,
    ) -> ContinueIf<'f, T>
    where
        P: DeserializeOwned,
        F: FnMut(Option<P>) -> Fut + Send + 'f,
        Fut: Future<Output = Result<Option<T>, Failure>> + Send + 'f,
    {
        let body = Box::new(move |cx: StepCx| -> super::Boxed<'f, _> {
            let check = cx.decode_signal().map(&mut condition);
            Box::pin(async move {
                match check?.await? {
                    Some(result) => encode_result(&(result,)),
                    None => Ok(b"false".to_vec()),
                }
            })
        });
        let mut raw = RawStep::new(core, CallKind::ContinueIf, name, line, body);
        let awaited = AwaitedSignal { name: name.to_owned(), can_read: can_read::<Option<P>> };
        (raw.on_done, raw.retry, raw.signal) = (complete_if_true, CallRetry::never(), Some(awaited));
        ContinueIf { raw, result: PhantomData }
    }

    named!(raw);

    /// Fails with the class `timeout` if the condition does not hold by then.
    pub fn timeout(mut self, span: Duration) -> Self {
        self.raw.call.within = Some(span);
        self
    }
}

impl<T> Unpin for ContinueIf<'_, T> {}

impl<T: DeserializeOwned> Future for ContinueIf<'_, T> {
    type Output = Result<T, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Failure>> {
        let this = self.get_mut();
        let Poll::Ready((_, ending)) = Pin::new(&mut this.raw).poll(cx) else { return Poll::Pending };
        let opened: Poll<Result<(T,), Failure>> =
            decode_result(&this.raw.call.core, &this.raw.call.name, this.raw.call.line, ending);
        opened.map(|result| result.map(|(result,)| result))
    }
}

/// A child: it is submitted with the next commit of the workflow, and `.await` waits for it and returns its output.
///
/// Children that are made one after the other and awaited later run side by side:
///
/// ```
/// # use windlass_model::Failure;
/// # use windlass_workflow::{Flow, Task, TaskCx};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Render { page: u32 }
/// # impl Task for Render {
/// #     const KIND: &'static str = "render";
/// #     type Output = u64;
/// #     type Error = Failure;
/// #     async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> { Ok(0) }
/// # }
/// # async fn example(flow: Flow) -> Result<(), Failure> {
/// let (a, b) = (flow.child("a", Render { page: 1 }), flow.child("b", Render { page: 2 }));
/// let pages = (a.await?, b.await?);
/// # Ok(())
/// # }
/// ```
#[must_use = "a child that nobody awaits is an error of the workflow; `.detach()` it if nobody needs its result"]
pub struct ChildWait<O> {
    raw: RawWait,
    result: PhantomData<fn() -> O>,
}

impl<O> ChildWait<O> {
    pub(super) fn new<J: Kind<M, Output = O>, M>(
        core: &Arc<Core>,
        name: &str,
        line: &'static Location<'static>,
        job: J,
    ) -> ChildWait<O> {
        let start = MadeStart::Child(Box::new(Child::new(job)));
        ChildWait { raw: RawWait::new(core, CallKind::Child, name, line, start), result: PhantomData }
    }

    named_made!();

    /// Sets more of the job: its queue, priority, tags, policies.
    pub fn with(self, describe: impl FnOnce(Child) -> Child) -> Self {
        let start = self.raw.made.lock().start.take();
        let start = match start {
            Some(MadeStart::Child(child)) => Some(MadeStart::Child(Box::new(describe(*child)))),
            other => other,
        };
        self.raw.made.lock().start = start;
        self
    }

    /// Submits the child and does not wait for it: the workflow continues and ends without it, and how the child ends is nobody's
    /// concern but its own. It exists if, and only if, the call is recorded, and exactly once.
    pub fn detach(self) {
        self.raw.detach();
    }
}

impl<O> Unpin for ChildWait<O> {}

impl<O: DeserializeOwned> Future for ChildWait<O> {
    type Output = Result<O, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<O, Failure>> {
        let this = self.get_mut();
        let Poll::Ready((_, ending)) = Pin::new(&mut this.raw).poll(cx) else { return Poll::Pending };
        let name = this.raw.made.lock().name.clone();
        decode_result(&this.raw.core, &name, this.raw.line, ending)
    }
}
