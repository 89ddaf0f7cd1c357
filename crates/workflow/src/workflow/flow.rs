//! The durable calls that the code of a workflow makes.

use std::{future::Future, panic::Location, sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use windlass_model::{
    Calendar, Failure, JobId, Payload, Time,
    journal::{CallEvent, CallKind},
};
use windlass_store::Tx;
#[cfg(feature = "sqlite")]
use windlass_store::rusqlite;
#[cfg(feature = "postgres")]
use windlass_store::tx::PostgresTx;

use super::{
    branch::Branch,
    call::Moment,
    cancel_scope::CatchCancel,
    context::Context,
    core::Core,
    fault::{misuse, source_location},
    journal::{CallEnd, Ident},
    merge::MergeCall,
    repeat::Repeat,
    select::{Race, Select},
    state::NOW,
    step::{Step, encode_result},
    step_cx::StepCx,
    transaction::Transaction,
    wait::{ChildWait, ContinueIf, SignalWait, Sleep, WaitUntil},
};
use crate::{Kind, Signal, Workflow};

/// The durable calls of a workflow.
///
/// The code awaits only these, or several of them joined. Each call has a name, by which a replay finds what it returned; a
/// name that is used again, in a loop, needs a key. Cheap to clone.
#[derive(Clone)]
pub struct Flow {
    pub(super) core: Arc<Core>,
}

impl Flow {
    /// The id of the job.
    pub fn id(&self) -> JobId {
        self.core.job.id
    }

    /// The caller's key for the job.
    pub fn key(&self) -> Option<&str> {
        self.core.job.key.as_deref()
    }

    /// The tick of the schedule that submitted it: the time it was scheduled for, however late it runs.
    pub fn tick(&self) -> Option<Time> {
        self.core.job.settings.tick
    }

    /// The program's data of this type, for use in steps; see [`StepCx::data`]. What it returns is not recorded: the workflow must not
    /// decide by it, since another process may have been given other data.
    #[track_caller]
    pub fn data<T: Send + Sync + 'static>(&self) -> &T {
        self.core.services.data.expect()
    }

    /// Runs something and records what it returns; see [`Step`].
    ///
    /// ```
    /// # use windlass_model::Failure;
    /// # use windlass_workflow::{Flow, Task, TaskCx};
    /// # async fn send(_: &str) -> Result<u64, Failure> { Ok(1) }
    /// # async fn example(flow: Flow) -> Result<(), Failure> {
    /// let to = String::from("ada@example.com");
    /// let id = flow.step("send", async || send(&to).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn step<'f, F, Fut, T>(&self, name: &str, mut run: F) -> Step<'f, T>
    where
        F: FnMut() -> Fut + Send + 'f,
        Fut: Future<Output = Result<T, Failure>> + Send + 'f,
        T: Serialize + DeserializeOwned + Send,
    {
        Step::new(&self.core, name, Location::caller(), move |_| run())
    }

    /// The same, for code that needs the number of the attempt, a fencing token or an idempotency key; see [`StepCx`].
    ///
    /// ```
    /// # use windlass_model::Failure;
    /// # use windlass_workflow::{Flow, Task, TaskCx};
    /// # async fn charge(_: u64, _: &str) -> Result<String, Failure> { Ok(String::new()) }
    /// # async fn example(flow: Flow, cents: u64) -> Result<(), Failure> {
    /// let payment = flow.step_with("pay", |cx| async move { charge(cents, cx.step_id()).await }).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn step_with<'f, F, Fut, T>(&self, name: &str, run: F) -> Step<'f, T>
    where
        F: FnMut(StepCx) -> Fut + Send + 'f,
        Fut: Future<Output = Result<T, Failure>> + Send + 'f,
        T: Serialize + DeserializeOwned + Send,
    {
        Step::new(&self.core, name, Location::caller(), run)
    }

    /// Writes to your own tables and records that in one transaction, on whichever database the store is in; see [`Transaction`].
    /// The closure gets a [`Tx`], whose statements are the same on both.
    ///
    /// ```
    /// # use windlass_model::Failure;
    /// # use windlass_workflow::{Flow, Task, TaskCx};
    /// # async fn example(flow: Flow, id: i64, guest: String) -> Result<(), Failure> {
    /// let total = flow
    ///     .transaction("book", async |tx| {
    ///         tx.execute("insert into bookings (id, guest) values ($1, $2)", (id, &guest)).await?;
    ///         tx.query_one("select count(*) as total from bookings", ()).await?.get::<i64>("total")
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn transaction<'f, F, Fut, T>(&self, name: &str, run: F) -> Transaction<'f, T>
    where
        F: FnMut(Tx) -> Fut + Send + 'f,
        Fut: Future<Output = Result<T, Failure>> + Send + 'f,
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        Transaction::on_either(&self.core, name, Location::caller(), run)
    }

    /// The same on PostgreSQL, by the driver itself: the closure gets a [`PostgresTx`], which is a `tokio_postgres::Client`.
    #[cfg(feature = "postgres")]
    #[track_caller]
    pub fn transaction_in_postgres<'f, F, Fut, T>(&self, name: &str, run: F) -> Transaction<'f, T>
    where
        F: FnMut(PostgresTx) -> Fut + Send + 'f,
        Fut: Future<Output = Result<T, Failure>> + Send + 'f,
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        Transaction::on_postgres(&self.core, name, Location::caller(), run)
    }

    /// The same on SQLite, by the driver itself: the closure, which is not async, gets a connection to the store's file with an open
    /// transaction. Nobody else can write to the file meanwhile: keep it short.
    #[cfg(feature = "sqlite")]
    #[track_caller]
    pub fn transaction_in_sqlite<'f, F, T>(&self, name: &str, run: F) -> Transaction<'f, T>
    where
        F: FnMut(&rusqlite::Connection) -> Result<T, Failure> + Send + 'f,
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        Transaction::on_sqlite(&self.core, name, Location::caller(), run)
    }

    /// Sleeps for a duration. The job is parked: it uses neither memory nor a slot.
    #[track_caller]
    pub fn sleep(&self, span: Duration) -> Sleep {
        Sleep::new(&self.core, Location::caller(), Moment::In(span))
    }

    /// Sleeps until a time.
    #[track_caller]
    pub fn sleep_until(&self, at: Time) -> Sleep {
        Sleep::new(&self.core, Location::caller(), Moment::At(at))
    }

    /// Waits for a signal and returns its payload. Signals that arrived earlier count, and each is returned once.
    ///
    /// ```
    /// # use windlass_model::Failure;
    /// # use windlass_workflow::{Flow, Task, TaskCx};
    /// # use std::time::Duration;
    /// # async fn example(flow: Flow) -> Result<(), Failure> {
    /// let approved: bool = flow.signal("approved").timeout(Duration::from_secs(14 * 86_400)).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn signal<T: DeserializeOwned>(&self, name: &str) -> SignalWait<T> {
        SignalWait::new(&self.core, Location::caller(), name)
    }

    /// Waits for a signal of a type, and returns it; see [`Signal`].
    #[track_caller]
    pub fn receive<S: Signal>(&self) -> SignalWait<S> {
        SignalWait::new(&self.core, Location::caller(), S::NAME)
    }

    /// Waits until a condition holds, which is checked at intervals; see [`WaitUntil::every`]. Checks do not count as attempts.
    #[track_caller]
    pub fn wait_until<'f, F, Fut>(&self, name: &str, condition: F) -> WaitUntil<'f>
    where
        F: FnMut() -> Fut + Send + 'f,
        Fut: Future<Output = Result<bool, Failure>> + Send + 'f,
    {
        WaitUntil::new(&self.core, name, Location::caller(), condition)
    }

    /// Waits until a condition holds, which is checked now and whenever a signal of this name arrives. The condition gets the
    /// payload of the signal, and the wait returns what the condition returns.
    #[track_caller]
    pub fn continue_if<'f, P, F, Fut, T>(&self, name: &str, condition: F) -> ContinueIf<'f, T>
    where
        P: DeserializeOwned,
        F: FnMut(Option<P>) -> Fut + Send + 'f,
        Fut: Future<Output = Result<Option<T>, Failure>> + Send + 'f,
        T: Serialize + DeserializeOwned,
    {
        ContinueIf::new(&self.core, name, Location::caller(), condition)
    }

    /// Submits a job and returns its output. The job exists if, and only if, the call is committed, and exactly once. It starts when
    /// the call is made; `.await` waits for its end.
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
    /// let (cover, index) = (flow.child("cover", Render { page: 0 }), flow.child("index", Render { page: 99 }));
    /// let bytes = cover.await? + index.await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn child<J: Kind<M>, M>(&self, name: &str, job: J) -> ChildWait<J::Output> {
        ChildWait::new(&self.core, name, Location::caller(), job)
    }

    /// The job that a call of [`Flow::child`] submitted; known once that call, or one made after it, has ended.
    pub fn child_id(&self, name: &str, key: Option<&str>) -> Option<JobId> {
        let state = self.core.lock();
        let recorded =
            state.journal.calls.get(name, key).filter(|recorded| recorded.call_kind == CallKind::Child)?;
        let (seq, child) = recorded.begun.as_ref().filter(|_| recorded.made_at.is_some())?;
        // The same on every replay: only entries before the last delivered end count.
        if *seq < state.delivered.last { serde_json::from_slice(&child.bytes).ok() } else { None }
    }

    /// Opens a branch of children that are spawned from sources; see [`Branch`].
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
    /// let bytes = flow
    ///     .branch("pages")
    ///     .spawn_each("page", 0..1_000_000, |page| Render { page })
    ///     .automerge()
    ///     .reduce(0, |sum: u64, bytes: u64| sum + bytes)
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn branch(&self, name: &str) -> Branch {
        Branch::new(&self.core, name, Location::caller())
    }

    /// Merges branches that were opened before; see [`MergeCall`].
    #[track_caller]
    pub fn merge<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) -> MergeCall {
        MergeCall::new(&self.core, names.into_iter().map(Into::into).collect(), Location::caller())
    }

    /// Merges one branch.
    #[track_caller]
    pub fn merge_branch(&self, name: &str) -> MergeCall {
        MergeCall::new(&self.core, vec![name.to_owned()], Location::caller())
    }

    /// Runs code that a cancel request ends: then its open calls are dropped, and this returns [`Cancelled`](super::Cancelled). The
    /// workflow continues from there, e.g. with steps that clean up, and takes as long as it needs. Whatever it returns then, its
    /// undos run, and the job ends as cancelled.
    ///
    /// ```
    /// # use windlass_model::Failure;
    /// # use windlass_workflow::{Flow, Task, TaskCx};
    /// # async fn render(_: &Flow) -> Result<u64, Failure> { Ok(0) }
    /// # async fn delete_frames() -> Result<(), Failure> { Ok(()) }
    /// # async fn example(flow: Flow) -> Result<u64, Failure> {
    /// match flow.catch_cancel("render", render(&flow)).await {
    ///     Ok(rendered) => rendered,
    ///     Err(cancelled) => {
    ///         flow.step("delete_frames", || delete_frames()).await?;
    ///         Err(cancelled.into())
    ///     }
    /// }
    /// # }
    /// ```
    #[track_caller]
    pub fn catch_cancel<'f, T>(
        &self,
        name: &str,
        code: impl Future<Output = T> + Send + 'f,
    ) -> CatchCancel<'f, T> {
        CatchCancel::new(&self.core, name, Location::caller(), code)
    }

    /// Returns what the first of several calls to end returns, and drops the others. Which one it was is recorded.
    ///
    /// ```
    /// # use windlass_model::Failure;
    /// # use windlass_workflow::{Flow, Task, TaskCx};
    /// # use std::time::Duration;
    /// # use windlass_workflow::First2;
    /// # async fn example(flow: Flow) -> Result<(), Failure> {
    /// let (answer, late) = (flow.signal::<String>("answer"), flow.sleep(Duration::from_secs(86_400)));
    /// let answer = match flow.select("answered", (answer, late)).await {
    ///     First2::A(answer) => answer?,
    ///     First2::B(()) => "no answer".into(),
    /// };
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn select<R: Race>(&self, name: &str, race: R) -> Select<R> {
        Select::new(&self.core, name, Location::caller(), race)
    }

    /// Runs something at each tick of a calendar; see [`Repeat`].
    ///
    /// ```
    /// # use windlass_model::Failure;
    /// # use windlass_workflow::{Flow, Task, TaskCx};
    /// # use std::ops::ControlFlow;
    /// # use windlass_model::{Calendar, failure::OrFailure};
    /// # async fn look() -> Result<Option<u64>, Failure> { Ok(None) }
    /// # async fn example(flow: Flow) -> Result<(), Failure> {
    /// let hourly = "every 1 hour".parse::<Calendar>().or_stop()?;
    /// let found: Option<u64> = flow
    ///     .repeat("look", hourly, |_tick, _cx| async {
    ///         Ok(match look().await? {
    ///             Some(found) => ControlFlow::Break(found),
    ///             None => ControlFlow::Continue(()),
    ///         })
    ///     })
    ///     .times(24)
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn repeat<'f, F, Fut, T>(&self, name: &str, calendar: Calendar, run: F) -> Repeat<'f, T>
    where
        F: FnMut(Time, StepCx) -> Fut + Send + 'f,
        Fut: Future<Output = Result<std::ops::ControlFlow<T>, Failure>> + Send + 'f,
        T: Serialize + DeserializeOwned + Send + 'f,
    {
        Repeat::new(&self.core, name, Location::caller(), calendar, run)
    }

    /// The time, by the store's clock: the same on every replay, and constant between two durable calls.
    pub fn now(&self) -> Time {
        if !self.core.may_call("`flow.now`") {
            return self.core.now();
        }
        let now = self.core.now();
        let mut state = self.core.lock();
        let ident: Ident = (NOW.into(), Some(state.delivered.last.to_string().into()));
        let recorded = state.journal.calls.of(&ident).and_then(|recorded| recorded.end.clone());
        if let Some((_, CallEnd::Done(payload))) = recorded
            && let Ok(at) = serde_json::from_slice(&payload.bytes)
        {
            state.journal.mark_reached(&ident);
            return at;
        }
        let payload = Payload::json(serde_json::to_vec(&now).unwrap_or_default());
        let entry = state.entry_of(&ident, CallKind::Now, CallEvent::Done, None, payload.clone(), now);
        let recorded = state.journal.recorded_mut(&ident);
        (recorded.call_kind, recorded.end, recorded.reached) =
            (CallKind::Now, Some((entry.seq, CallEnd::Done(payload))), true);
        state.pending.push(entry);
        now
    }

    /// A random number: the same on every replay, and different for every call.
    pub fn random(&self) -> u64 {
        self.core.may_call("`flow.random`");
        self.core.draw_random()
    }

    /// The version of the code at this point that the job runs: `newest`, or the newest when the job first reached this call,
    /// or 0 if it passed here before the call existed. Branch on it to change code while jobs are running.
    #[track_caller]
    pub fn version(&self, name: &str, newest: u32) -> u32 {
        let line = Location::caller();
        let now = self.core.now();
        let mut state = self.core.lock();
        let state = &mut *state;
        let ident = match state.check_call(CallKind::Version, name, None, line) {
            Ok(ident) => ident,
            Err(fault) => {
                state.code.fault.get_or_insert(fault);
                return newest;
            }
        };
        let recorded = state.journal.calls.of(&ident).and_then(|recorded| recorded.end.clone());
        if let Some((_, CallEnd::Done(payload))) = recorded {
            state.journal.mark_reached(&ident);
            return serde_json::from_slice(&payload.bytes).unwrap_or(newest);
        }
        let version = if state.is_live() { newest } else { 0 };
        let payload = Payload::json(version.to_string().into_bytes());
        let entry = state.entry_of(
            &ident,
            CallKind::Version,
            CallEvent::Done,
            Some(source_location(line)),
            payload,
            now,
        );
        state.pending.push(entry);
        version
    }

    /// The named values that others can read while the workflow runs.
    pub fn context(&self) -> Context<'_> {
        Context { core: &self.core }
    }

    /// Starts a new run of the workflow with another input: the same job, an empty journal, and the context as it is. For
    /// workflows that never end. Does not return.
    pub async fn continue_as_new<W: Workflow, R>(&self, input: W) -> R {
        if self.core.may_call("`continue_as_new`") {
            match encode_result(&input) {
                Ok(_) if W::KIND != self.core.job.kind.kind => self.core.fault(misuse(format!(
                    "`continue_as_new` is called with a {:?}, and this workflow is a {:?}",
                    W::KIND,
                    self.core.job.kind.kind
                ))),
                Ok(input) => self.core.lock().code.continue_input = Some(input),
                Err(failure) => self.core.fault(failure),
            }
        }
        std::future::pending().await
    }
}
