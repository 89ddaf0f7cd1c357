//! Something done by the calendar, within a workflow.
//!
//! The ticks are those of the calendar, however late the last one ran: the grid does not drift. What is kept is where the
//! repeat stands and its last few ticks, so that a workflow that repeats something for years is replayed as fast as on its
//! first day.

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
    journal::{Mark, Op},
};
use windlass_runtime::Policy;

use super::{
    Boxed,
    core::Core,
    journal::{CallEnd, Ident},
    state::{Start, source_location},
    step::{Body, RawStep, TryCx, decode_result, encode_result},
    wait::RawWait,
};

/// How many ticks that have ended are kept for people to see.
const KEPT: usize = 10;
/// How old a tick may be and still run, unless the user says otherwise.
const WINDOW: Duration = Duration::from_secs(3_600);

/// What follows when a tick has failed for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnError {
    /// The next tick: that one has failed, which its entry says.
    #[default]
    Continue,
    /// The repeat fails, with the error of the tick.
    Fail,
}

/// A repeat that is being described; `.await` returns when it is over: with what a tick broke it off with, or `None` if its
/// time or number was over.
///
/// Each tick is a step, given the moment it stands for; between ticks the job is parked. A tick whose code returns
/// `ControlFlow::Break` is the last one.
#[must_use = "nothing is repeated until this is awaited"]
pub struct Repeat<'f, T, E> {
    about: RepeatSpec,
    body: Option<TickBody<'f>>,
    running: Option<Boxed<'f, Result<Option<T>, E>>>,
}

/// The body of all ticks.
type Shared<'f> = std::sync::Mutex<TickBody<'f>>;

type TickBody<'f> = Box<dyn FnMut(Time, TryCx) -> Boxed<'f, Result<Vec<u8>, Failure>> + Send + 'f>;

#[derive(Clone)]
struct RepeatSpec {
    core: Arc<Core>,
    name: String,
    line: &'static Location<'static>,
    calendar: Calendar,
    catch_up: CatchUp,
    until: Option<Time>,
    times: Option<u64>,
    retry: Retry,
    timeout: Option<Duration>,
    on_error: OnError,
}

/// Where a repeat stands.
#[derive(Clone, Serialize, Deserialize)]
struct RepeatState {
    /// When it was begun.
    from: Time,
    /// The last tick that is over.
    last: Option<Time>,
    /// How many were run.
    ticks: u64,
}

impl<'f, T, E> Repeat<'f, T, E>
where
    T: Serialize + DeserializeOwned + Send + 'f,
    E: Into<Failure> + From<Failure> + Send + 'f,
{
    pub(super) fn new<F, Fut>(
        core: &Arc<Core>,
        name: &str,
        line: &'static Location<'static>,
        calendar: Calendar,
        mut run: F,
    ) -> Repeat<'f, T, E>
    where
        F: FnMut(Time, TryCx) -> Fut + Send + 'f,
        Fut: Future<Output = Result<ControlFlow<T>, E>> + Send + 'f,
    {
        let body: TickBody<'f> = Box::new(move |tick, cx| {
            let run = run(tick, cx);
            Box::pin(async move {
                match run.await.map_err(Into::into)? {
                    ControlFlow::Continue(()) => Ok(b"null".to_vec()),
                    ControlFlow::Break(result) => encode_result(&(result,)),
                }
            })
        });
        let Policy { retry, timeout } = Policy::default();
        let about = RepeatSpec {
            core: Arc::clone(core),
            name: name.to_owned(),
            line,
            calendar,
            catch_up: CatchUp::All { window: WINDOW },
            until: None,
            times: None,
            retry,
            timeout,
            on_error: OnError::default(),
        };
        Repeat { about, body: Some(body), running: None }
    }

    /// What becomes of ticks that were due while nobody was there: those of the last hour run, oldest first, and the others
    /// are summed up in one entry, unless you say otherwise.
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        self.about.catch_up = catch_up;
        self
    }

    /// No tick after this moment.
    pub fn until(mut self, at: Time) -> Self {
        self.about.until = Some(at);
        self
    }

    /// No more ticks than this.
    pub fn times(mut self, times: u64) -> Self {
        self.about.times = Some(times);
        self
    }

    /// When to try a tick again: 20 tries with growing waits, unless you say otherwise.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.about.retry = retry;
        self
    }

    /// How long one try at a tick may run: an hour, unless you say otherwise.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.about.timeout = Some(timeout);
        self
    }

    /// What follows when a tick has failed for good.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.about.on_error = on_error;
        self
    }
}

impl<T, E> Unpin for Repeat<'_, T, E> {}

impl<'f, T, E> Future for Repeat<'f, T, E>
where
    T: Serialize + DeserializeOwned + Send + 'f,
    E: Into<Failure> + From<Failure> + Send + 'f,
{
    type Output = Result<Option<T>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Option<T>, E>> {
        let this = self.get_mut();
        if let Some(body) = this.body.take() {
            this.running = Some(Box::pin(run(this.about.clone(), body)));
        }
        match &mut this.running {
            Some(running) => running.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

async fn run<'f, T, E>(about: RepeatSpec, body: TickBody<'f>) -> Result<Option<T>, E>
where
    T: DeserializeOwned,
    E: From<Failure>,
{
    let RepeatSpec { core, name, line, calendar, .. } = &about;
    // It is over already, or this returns at once.
    let whole = RawWait::new(core, Op::Repeat, name, line, Start::Unrecorded(Time(0)));
    let (_, ending) = whole.await;
    let known = about.known();
    about.restore_context();
    if !matches!(&ending, CallEnd::Done(payload) if payload.bytes == b"null") {
        return over(&about, ending).await;
    }
    let body = Arc::new(std::sync::Mutex::new(body));
    let mut stand = known.unwrap_or_else(|| about.begin());
    loop {
        // A tick that was begun is brought to its end, however late it is by now.
        if let Some(tick) = about.begun(&stand) {
            match about.end_of_tick(tick, &body, &mut stand).await {
                Some(ending) => return over(&about, ending).await,
                None => continue,
            }
        }
        let next = calendar.next_after(stand.last.unwrap_or(stand.from));
        let next = next.filter(|next| about.until.is_none_or(|until| *next <= until));
        let Some(next) = next.filter(|_| about.times.is_none_or(|times| stand.ticks < times)) else {
            return over(&about, about.end(CallEnd::Done(Payload::json(b"[null]".to_vec())))).await;
        };
        let wait = RawWait::new(core, Op::Repeat, name, line, Start::Unrecorded(next));
        wait.keyed(format!("until {next}")).await;
        let plan = plan(calendar, about.catch_up, next, core.now().max(next), 1);
        if let Some(missed) = plan.missed {
            // What would have followed the end of the repeat was not missed.
            let end = about.until.filter(|until| missed.to > *until);
            let counted = end.map_or(Some(missed), |until| Missed::between(calendar, missed.from, until));
            counted.iter().for_each(|missed| about.missed(missed));
            stand.last = Some(missed.to);
        }
        let Some(tick) = plan.fire.first().copied() else {
            about.keep(&stand, None);
            continue;
        };
        if about.until.is_some_and(|until| tick > until) {
            about.keep(&stand, None);
            continue;
        }
        if let Some(ending) = about.end_of_tick(tick, &body, &mut stand).await {
            return over(&about, ending).await;
        }
    }
}

/// What a repeat that is over returns: nothing, or what a tick broke it off with.
async fn over<T: DeserializeOwned, E: From<Failure>>(
    about: &RepeatSpec,
    ending: CallEnd,
) -> Result<Option<T>, E> {
    let RepeatSpec { core, name, line, .. } = about;
    let mut ending = Some(ending);
    std::future::poll_fn(move |_| match ending.take() {
        Some(ending) => decode_result::<(Option<T>,), E>(core, name, line, ending),
        None => Poll::Pending,
    })
    .await
    .map(|(result,)| result)
}

impl RepeatSpec {
    fn ident(&self) -> Ident {
        (self.name.as_str().into(), None)
    }

    /// Where it stands, as far as is known.
    fn known(&self) -> Option<RepeatState> {
        let known = self.core.lock().journal.calls.of(&self.ident()).and_then(|known| known.begun.clone());
        serde_json::from_slice(&known?.1.bytes).ok()
    }

    /// Its ticks are not come to again, and what they have set is still so.
    fn restore_context(&self) {
        let state = &mut *self.core.lock();
        let sets = state.journal.repeat_sets.get(self.name.as_str()).into_iter().flatten();
        state.context.extend(sets.map(|set| (set.name.clone(), set.value.clone())));
    }

    /// Where it stands at its beginning, which is written.
    fn begin(&self) -> RepeatState {
        let stand = RepeatState { from: self.core.now(), last: None, ticks: 0 };
        self.keep(&stand, None);
        stand
    }

    /// Has written, with the next commit, where it stands, and forgotten what that makes needless. `ended` is the place of
    /// a tick that has.
    fn keep(&self, stand: &RepeatState, ended: Option<i32>) {
        let now = self.core.now();
        let state = &mut *self.core.lock();
        // Of what ticks have set under one name, only the last is needed.
        let mut forget = Vec::new();
        if let Some(sets) = state.journal.repeat_sets.get_mut(self.name.as_str()) {
            let newest: BTreeMap<String, i32> = sets.iter().map(|set| (set.name.clone(), set.seq)).collect();
            sets.retain(|set| {
                let needed = newest[&set.name] == set.seq;
                forget.extend((!needed).then_some(set.seq));
                needed
            });
        }
        let payload = Payload::json(serde_json::to_vec(stand).unwrap_or_default());
        let line = Some(source_location(self.line));
        let entry = state.entry_of(&self.ident(), Op::Repeat, Mark::Begun, line, payload.clone(), now);
        let seq = entry.seq;
        state.pending.entries.push(entry);
        let known = state.journal.recorded_mut(&self.ident());
        known.op = Op::Repeat;
        let before = known.begun.replace((seq, payload));
        forget.extend(before.into_iter().map(|(seq, _)| seq));
        let ticks = state.journal.ticks.entry(self.name.as_str().into()).or_default();
        ticks.extend(ended.filter(|seq| !ticks.contains(seq)));
        while ticks.len() > KEPT {
            forget.push(ticks.remove(0));
        }
        // What is not committed yet is not written in the first place.
        for seq in forget {
            let there = state.pending.entries.len();
            state.pending.entries.retain(|entry| entry.seq != seq);
            if state.pending.entries.len() == there {
                state.pending.forget_entries.push(seq);
            }
        }
    }

    /// One entry for all ticks that were missed.
    fn missed(&self, missed: &Missed) {
        let now = self.core.now();
        let payload = Payload::json(serde_json::to_vec(missed).unwrap_or_default());
        let ident: Ident = (self.name.as_str().into(), Some(format!("missed {}", missed.from).into()));
        let state = &mut *self.core.lock();
        let entry = state.entry_of(&ident, Op::Repeat, Mark::Failed, None, payload, now);
        state.journal.ticks.entry(self.name.as_str().into()).or_default().push(entry.seq);
        state.pending.entries.push(entry);
    }

    /// The first tick after where it stands that the journal knows of.
    fn begun(&self, stand: &RepeatState) -> Option<Time> {
        let after = stand.last.unwrap_or(stand.from).to_string();
        let state = self.core.lock();
        let ticks = state.journal.calls.keyed(&self.name).filter(|(_, known)| {
            // What this run has made is over, and where it stands says so.
            known.made_at.is_none() && (known.tried.is_some() || known.end.is_some())
        });
        // As text they are in the order of time.
        let first = ticks
            .map(|(key, _)| key)
            .filter(|key| **key > *after && key.starts_with(char::is_numeric))
            .min()?;
        serde_json::from_value(serde_json::Value::String(first.to_owned())).ok()
    }

    /// Brings a tick to its end. Answers that of the repeat, if the tick is it.
    async fn end_of_tick(
        &self,
        tick: Time,
        body: &Arc<Shared<'_>>,
        stand: &mut RepeatState,
    ) -> Option<CallEnd> {
        let (seq, ending) = self.tick(tick, Arc::clone(body)).await;
        (stand.last, stand.ticks) = (Some(tick), stand.ticks + 1);
        match ending {
            CallEnd::Done(payload) => {
                let plain = self.core.bound.codecs.decode(&payload).map(|plain| plain.into_owned());
                if plain.as_deref() != Ok(b"null") {
                    return Some(self.end(CallEnd::Done(payload)));
                }
            }
            CallEnd::Failed { .. } if self.on_error == OnError::Fail => return Some(self.end(ending)),
            CallEnd::Failed { .. } => {}
        }
        self.keep(stand, Some(seq));
        None
    }

    /// One tick, as a step.
    async fn tick<'f>(&self, tick: Time, body: Arc<Shared<'f>>) -> (i32, CallEnd) {
        let body: Body<'f> = Box::new(move |cx| (body.lock().unwrap_or_else(|e| e.into_inner()))(tick, cx));
        let mut step = RawStep::new(&self.core, Op::Repeat, &self.name, self.line, body);
        step.key = Some(tick.to_string());
        step.retry = self.retry.clone();
        step.timeout = self.timeout;
        step.await
    }

    /// Its end, written with the next commit.
    fn end(&self, ending: CallEnd) -> CallEnd {
        let now = self.core.now();
        let state = &mut *self.core.lock();
        let mark = match &ending {
            CallEnd::Done(_) => Mark::Done,
            CallEnd::Failed { .. } => Mark::Failed,
        };
        let entry = state.entry_of(&self.ident(), Op::Repeat, mark, None, ending.failed_payload(), now);
        // As if it had been delivered, as it is on every replay.
        (state.last_delivered, state.draws) = (entry.seq, 0);
        if let CallEnd::Failed { failure, reason } = &ending {
            state.failures.push((entry.seq, failure.clone(), *reason));
        }
        state.pending.entries.push(entry);
        ending
    }
}
