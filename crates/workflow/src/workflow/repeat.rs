//! Repeats: a step at each tick of a calendar, within a workflow.
//!
//! The ticks are those of the calendar, however late the last one ran: the grid does not drift. Only the progress of the repeat
//! and its last few ticks are kept, so that a workflow that repeats something for years is replayed as fast as on its first
//! day.

use std::{
    collections::BTreeMap,
    future::Future,
    ops::ControlFlow,
    panic::Location,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use windlass_model::{
    Calendar, Failure, Payload, Retry, Time,
    calendar::{CatchUp, Missed, plan},
    journal::{CallEvent, CallKind},
};
use windlass_runtime::Policy;

use super::{
    Boxed,
    call::Start,
    call_retry::{CallRetry, retry_settings},
    core::Core,
    fault::source_location,
    journal::{CallEnd, Ident},
    made::MadeStart,
    step::{Body, RawStep, decode_result, encode_result},
    step_cx::StepCx,
    wait::RawWait,
};

/// How many ended ticks are kept for people to see.
const KEPT_TICKS: usize = 10;
/// How old a tick may be and still run, by default.
const DEFAULT_WINDOW: Duration = Duration::from_secs(3_600);

/// What follows when a tick has failed and is not retried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnError {
    /// The next tick. The journal shows that this one failed.
    #[default]
    Continue,
    /// The repeat fails, with the error of the tick.
    Fail,
}

/// A repeat that is being described; `.await` returns when it is over: the value that a tick broke with, or `None` after its
/// last tick.
///
/// Each tick is a step, given its scheduled time; between ticks the job is parked. A tick whose code returns
/// `ControlFlow::Break` is the last one.
#[must_use = "nothing is repeated until this is awaited"]
pub struct Repeat<'f, T> {
    spec: RepeatSpec,
    body: Option<TickBody<'f>>,
    running: Option<Boxed<'f, Result<Option<T>, Failure>>>,
}

/// The body of all ticks.
type Shared<'f> = std::sync::Mutex<TickBody<'f>>;

type TickBody<'f> = Box<dyn FnMut(Time, StepCx) -> Boxed<'f, Result<Vec<u8>, Failure>> + Send + 'f>;

#[derive(Clone)]
struct RepeatSpec {
    core: Arc<Core>,
    name: String,
    line: &'static Location<'static>,
    calendar: Calendar,
    catch_up: CatchUp,
    until: Option<Time>,
    times: Option<u64>,
    retry: CallRetry,
    timeout: Option<Duration>,
    on_error: OnError,
}

/// The progress of a repeat, committed after each tick: the payload of the entry that says that it began.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RepeatProgress {
    /// When it began.
    pub from: Time,
    /// The last tick that is over.
    pub last: Option<Time>,
    /// The number of ticks that ran.
    pub ticks: u64,
}

impl<'f, T> Repeat<'f, T>
where
    T: Serialize + DeserializeOwned + Send + 'f,
{
    pub(super) fn new<F, Fut>(
        core: &Arc<Core>,
        name: &str,
        line: &'static Location<'static>,
        calendar: Calendar,
        mut run: F,
    ) -> Repeat<'f, T>
    where
        F: FnMut(Time, StepCx) -> Fut + Send + 'f,
        Fut: Future<Output = Result<ControlFlow<T>, Failure>> + Send + 'f,
    {
        let body: TickBody<'f> = Box::new(move |tick, cx| {
            let run = run(tick, cx);
            Box::pin(async move {
                match run.await? {
                    ControlFlow::Continue(()) => Ok(b"null".to_vec()),
                    ControlFlow::Break(result) => encode_result(&(result,)),
                }
            })
        });
        let spec = RepeatSpec {
            core: Arc::clone(core),
            name: name.to_owned(),
            line,
            calendar,
            catch_up: CatchUp::All { window: DEFAULT_WINDOW },
            until: None,
            times: None,
            retry: CallRetry::new(core.backoff),
            timeout: Policy::default().timeout,
            on_error: OnError::default(),
        };
        Repeat { spec, body: Some(body), running: None }
    }

    /// What follows for ticks that were missed while no worker ran: by default those of the last hour run, oldest first, and
    /// the others are summed up in one entry.
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        self.spec.catch_up = catch_up;
        self
    }

    /// No tick after this time.
    pub fn until(mut self, at: Time) -> Self {
        self.spec.until = Some(at);
        self
    }

    /// No more ticks than this.
    pub fn times(mut self, times: u64) -> Self {
        self.spec.times = Some(times);
        self
    }

    retry_settings!("a tick", spec.retry);

    /// How long one attempt at a tick may run: by default an hour.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.spec.timeout = Some(timeout);
        self
    }

    /// What follows when a tick has failed and is not retried.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.spec.on_error = on_error;
        self
    }
}

impl<T> Unpin for Repeat<'_, T> {}

impl<'f, T> Future for Repeat<'f, T>
where
    T: Serialize + DeserializeOwned + Send + 'f,
{
    type Output = Result<Option<T>, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Option<T>, Failure>> {
        let this = self.get_mut();
        if let Some(body) = this.body.take() {
            this.running = Some(Box::pin(run(this.spec.clone(), body)));
        }
        match &mut this.running {
            Some(running) => running.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

async fn run<'f, T>(spec: RepeatSpec, body: TickBody<'f>) -> Result<Option<T>, Failure>
where
    T: DeserializeOwned,
{
    let RepeatSpec { core, name, line, calendar, .. } = &spec;
    // Returns the recorded end of the repeat, or null at once.
    let recorded_end =
        RawWait::new(core, CallKind::Repeat, name, line, MadeStart::Wait(Start::Unrecorded(Time(0))));
    let (_, ending) = recorded_end.await;
    let recorded = spec.recorded();
    spec.restore_context();
    if !matches!(&ending, CallEnd::Done(payload) if payload.bytes == b"null") {
        return decode_end(&spec, ending).await;
    }
    let body = Arc::new(std::sync::Mutex::new(body));
    let mut progress = recorded.unwrap_or_else(|| spec.begin());
    loop {
        // A tick that began before is finished, however late it is by now.
        if let Some(tick) = spec.begun_tick(&progress) {
            match spec.finish_tick(tick, &body, &mut progress).await {
                Some(ending) => return decode_end(&spec, ending).await,
                None => continue,
            }
        }
        let next = calendar.next_after(progress.last.unwrap_or(progress.from));
        let next = next.filter(|next| spec.until.is_none_or(|until| *next <= until));
        let Some(next) = next.filter(|_| spec.times.is_none_or(|times| progress.ticks < times)) else {
            return decode_end(&spec, spec.end(CallEnd::Done(Payload::json(b"[null]".to_vec())))).await;
        };
        let wait = RawWait::new(core, CallKind::Repeat, name, line, MadeStart::Wait(Start::Unrecorded(next)));
        wait.keyed(format!("until {next}")).await;
        let plan = plan(calendar, spec.catch_up, next, core.now().max(next), 1);
        if let Some(missed) = plan.missed {
            // Ticks after the end of the repeat were not missed.
            let end = spec.until.filter(|until| missed.to > *until);
            let counted = end.map_or(Some(missed), |until| Missed::between(calendar, missed.from, until));
            counted.iter().for_each(|missed| spec.record_missed(missed));
            progress.last = Some(missed.to);
        }
        let Some(tick) = plan.fire.first().copied() else {
            spec.save(&progress, None);
            continue;
        };
        if spec.until.is_some_and(|until| tick > until) {
            spec.save(&progress, None);
            continue;
        }
        if let Some(ending) = spec.finish_tick(tick, &body, &mut progress).await {
            return decode_end(&spec, ending).await;
        }
    }
}

/// Decodes what a repeat that is over returns: nothing, or the value that a tick broke with.
async fn decode_end<T: DeserializeOwned>(spec: &RepeatSpec, ending: CallEnd) -> Result<Option<T>, Failure> {
    let RepeatSpec { core, name, line, .. } = spec;
    let mut ending = Some(ending);
    std::future::poll_fn(move |_| match ending.take() {
        Some(ending) => decode_result::<(Option<T>,)>(core, name, line, ending),
        None => Poll::Pending,
    })
    .await
    .map(|(result,)| result)
}

impl RepeatSpec {
    fn ident(&self) -> Ident {
        (self.name.as_str().into(), None)
    }

    /// Returns the recorded progress.
    fn recorded(&self) -> Option<RepeatProgress> {
        let recorded =
            self.core.lock().journal.calls.of(&self.ident()).and_then(|recorded| recorded.begun.clone());
        serde_json::from_slice(&recorded?.1.bytes).ok()
    }

    /// Restores what recorded ticks have set in the context: the code does not reach these ticks again.
    fn restore_context(&self) {
        let state = &mut *self.core.lock();
        let sets = state.journal.repeat_sets.get(self.name.as_str()).into_iter().flatten();
        state.context.values.extend(sets.map(|set| (set.name.clone(), set.value.clone())));
    }

    /// Begins the repeat, and records that.
    fn begin(&self) -> RepeatProgress {
        let progress = RepeatProgress { from: self.core.now(), last: None, ticks: 0 };
        self.save(&progress, None);
        progress
    }

    /// Records the progress with the next commit, and forgets the entries that this makes superfluous. `ended` is the sequence
    /// number of a tick that has ended.
    fn save(&self, progress: &RepeatProgress, ended: Option<i32>) {
        let now = self.core.now();
        let state = &mut *self.core.lock();
        // Of the values that ticks have set under one name, only the last is needed.
        let mut forget = Vec::new();
        if let Some(sets) = state.journal.repeat_sets.get_mut(self.name.as_str()) {
            let newest: BTreeMap<String, i32> = sets.iter().map(|set| (set.name.clone(), set.seq)).collect();
            sets.retain(|set| {
                let needed = newest[&set.name] == set.seq;
                forget.extend((!needed).then_some(set.seq));
                needed
            });
        }
        let payload = Payload::json(serde_json::to_vec(progress).unwrap_or_default());
        let line = Some(source_location(self.line));
        let entry =
            state.entry_of(&self.ident(), CallKind::Repeat, CallEvent::Begun, line, payload.clone(), now);
        let seq = entry.seq;
        state.pending.push(entry);
        let recorded = state.journal.recorded_mut(&self.ident());
        recorded.call_kind = CallKind::Repeat;
        let before = recorded.begun.replace((seq, payload));
        forget.extend(before.into_iter().map(|(seq, _)| seq));
        let ticks = state.journal.ticks.entry(self.name.as_str().into()).or_default();
        ticks.extend(ended.filter(|seq| !ticks.contains(seq)));
        while ticks.len() > KEPT_TICKS {
            forget.push(ticks.remove(0));
        }
        // An entry that is not committed yet is removed instead.
        for seq in forget {
            let count = state.pending.entries.len();
            state.pending.entries.retain(|entry| entry.seq != seq);
            if state.pending.entries.len() == count {
                state.pending.forget_entries.push(seq);
            }
        }
    }

    /// Records all ticks that were missed in one entry.
    fn record_missed(&self, missed: &Missed) {
        let now = self.core.now();
        let payload = Payload::json(serde_json::to_vec(missed).unwrap_or_default());
        let ident: Ident = (self.name.as_str().into(), Some(format!("missed {}", missed.from).into()));
        let state = &mut *self.core.lock();
        let entry = state.entry_of(&ident, CallKind::Repeat, CallEvent::Failed, None, payload, now);
        state.journal.ticks.entry(self.name.as_str().into()).or_default().push(entry.seq);
        state.pending.push(entry);
    }

    /// Returns the first recorded tick after the progress.
    fn begun_tick(&self, progress: &RepeatProgress) -> Option<Time> {
        let after = progress.last.unwrap_or(progress.from).to_string();
        let state = self.core.lock();
        let ticks = state.journal.calls.keyed(&self.name).filter(|(_, recorded)| {
            // The progress already has the ticks of this run.
            recorded.made_at.is_none() && (recorded.tried.is_some() || recorded.end.is_some())
        });
        // As text they are in the order of time.
        let first = ticks
            .map(|(key, _)| key)
            .filter(|key| **key > *after && key.starts_with(char::is_numeric))
            .min()?;
        serde_json::from_value(serde_json::Value::String(first.to_owned())).ok()
    }

    /// Runs a tick to its end. Returns the end of the repeat, if this tick ends it.
    async fn finish_tick(
        &self,
        tick: Time,
        body: &Arc<Shared<'_>>,
        progress: &mut RepeatProgress,
    ) -> Option<CallEnd> {
        let (seq, ending) = self.tick(tick, Arc::clone(body)).await;
        (progress.last, progress.ticks) = (Some(tick), progress.ticks + 1);
        match ending {
            CallEnd::Done(payload) => {
                let plain = self.core.services.codecs.decode(&payload).map(|plain| plain.into_owned());
                if plain.as_deref() != Ok(b"null") {
                    return Some(self.end(CallEnd::Done(payload)));
                }
            }
            CallEnd::Failed { .. } if self.on_error == OnError::Fail => return Some(self.end(ending)),
            CallEnd::Failed { .. } => {}
        }
        self.save(progress, Some(seq));
        None
    }

    /// Runs one tick as a step.
    async fn tick<'f>(&self, tick: Time, body: Arc<Shared<'f>>) -> (i32, CallEnd) {
        let body: Body<'f> = Box::new(move |cx| (body.lock().unwrap_or_else(|e| e.into_inner()))(tick, cx));
        let mut step = RawStep::new(&self.core, CallKind::Repeat, &self.name, self.line, body);
        step.call.key = Some(tick.to_string());
        step.retry = self.retry.clone();
        step.timeout = self.timeout;
        step.await
    }

    /// Records the end of the repeat with the next commit.
    fn end(&self, ending: CallEnd) -> CallEnd {
        let now = self.core.now();
        let state = &mut *self.core.lock();
        let event = match &ending {
            CallEnd::Done(_) => CallEvent::Done,
            CallEnd::Failed { .. } => CallEvent::Failed,
        };
        let entry =
            state.entry_of(&self.ident(), CallKind::Repeat, event, None, ending.failed_payload(), now);
        // As if it had been delivered, which it is on every replay.
        (state.delivered.last, state.delivered.draws) = (entry.seq, 0);
        if let CallEnd::Failed { failure, reason } = &ending {
            state.delivered.failures.push((entry.seq, failure.clone(), *reason));
        }
        state.pending.push(entry);
        ending
    }
}
