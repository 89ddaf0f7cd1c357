//! What a step returns: what follows from it.

use std::{fmt, time::Duration};

use windlass_model::{Failure, Merge, Wait, WaitCondition, failure::class, wait::SignalName};
use windlass_runtime::{Attempt, Stage, StepResult};

use super::{Machine, MachineCx, branch, stage};
use crate::{Child, Signal, attempt_source::LiveAttempt};

/// What follows from a step of a machine.
///
/// ```
/// # use std::time::Duration;
/// # use serde::{Deserialize, Serialize};
/// # use windlass_model::Failure;
/// # use windlass_workflow::{Machine, MachineCx, Next};
/// # async fn build(_: &str) -> Result<Option<String>, Failure> { Ok(None) }
/// #[derive(Serialize, Deserialize)]
/// enum Release {
///     Build { commit: String },
///     AwaitApproval { file: String },
///     Publish { file: String },
/// }
///
/// impl Machine for Release {
///     const KIND: &'static str = "release";
///     type Output = String;
///     type Error = Failure;
///
///     async fn step(self, cx: &MachineCx) -> Result<Next<Release>, Failure> {
///         Ok(match self {
///             Release::Build { commit } => match build(&commit).await? {
///                 Some(file) => {
///                     Next::wait(Release::AwaitApproval { file }, "approve").timeout(Duration::from_secs(86_400))
///                 }
///                 // Not ready: the same step again, in a minute.
///                 None => Next::retry_after(Release::Build { commit }, Duration::from_secs(60)),
///             },
///             Release::AwaitApproval { .. } if cx.timed_out() => Next::stop("nobody approved it"),
///             Release::AwaitApproval { file } => Next::to(Release::Publish { file }),
///             Release::Publish { file } => Next::done(file),
///         })
///     }
/// }
/// ```
#[must_use = "what follows from a step is what it returns"]
pub struct Next<M: Machine> {
    to: NextKind<M>,
    timeout: Option<Duration>,
}

enum NextKind<M: Machine> {
    Next(M),
    Wait(M, WaitFor),
    Children(M, Vec<Child>),
    Merge(M, Vec<String>, Box<Merge>),
    Again(M, Duration),
    Done(M::Output),
    Stop(Failure),
    Failed(Failure),
}

impl<M: Machine> Next<M> {
    fn new(to: NextKind<M>) -> Next<M> {
        Next { to, timeout: None }
    }

    /// Continues in this stage as soon as that is committed. The signals that the step saw are consumed.
    pub fn to(stage: M) -> Next<M> {
        Next::new(NextKind::Next(stage))
    }

    /// Continues in this stage when signals have arrived: one of a name, or what [`WaitFor`] says. Signals that arrived earlier
    /// count.
    pub fn wait(stage: M, signals: impl Into<WaitFor>) -> Next<M> {
        Next::new(NextKind::Wait(stage, signals.into()))
    }

    /// Continues in this stage when a signal of this type has arrived; the next step reads it with
    /// [`crate::MachineCx::receive`]. Short for a wait for [`WaitFor::receive`].
    pub fn receive<S: Signal>(stage: M) -> Next<M> {
        Next::wait(stage, WaitFor::receive::<S>())
    }

    /// Submits jobs and continues in this stage when all of them have ended, successfully or not; [`crate::MachineCx::children`]
    /// returns how. Continues at once if there are none, or if jobs with their keys existed already.
    pub fn children(stage: M, children: impl IntoIterator<Item = Child>) -> Next<M> {
        Next::new(NextKind::Children(stage, children.into_iter().collect()))
    }

    /// Continues in this stage when the merge of branches that this step or an earlier one opened is over, successfully or not;
    /// [`crate::MachineCx::merged`] returns its result.
    pub fn merge<N: Into<String>>(stage: M, branches: impl IntoIterator<Item = N>, merge: Merge) -> Next<M> {
        let names = branches.into_iter().map(Into::into).collect();
        Next::new(NextKind::Merge(stage, names, Box::new(merge)))
    }

    /// Continues in this stage after a time.
    pub fn sleep(stage: M, span: Duration) -> Next<M> {
        let no_signals = WaitFor { names: Vec::new(), needs: 1, nested: false };
        Next::new(NextKind::Wait(stage, no_signals)).timeout(span)
    }

    /// Runs the same step again after a time. Changed fields of the stage are kept; another variant would be another step and
    /// is refused: see [`Next::sleep`]. Signals are not consumed.
    pub fn retry_after(stage: M, after: Duration) -> Next<M> {
        Next::new(NextKind::Again(stage, after))
    }

    /// Ends the machine with this output.
    pub fn done(output: M::Output) -> Next<M> {
        Next::new(NextKind::Done(output))
    }

    /// Fails the machine, whatever the retry policy says.
    pub fn stop(why: impl fmt::Display) -> Next<M> {
        Next::new(NextKind::Stop(Failure::stop(why)))
    }

    /// The same, with all fields of the failure.
    pub fn fail(failure: Failure) -> Next<M> {
        Next::new(NextKind::Stop(failure))
    }

    /// Lets the retry policy of the stage decide what follows from this error.
    pub fn by_policy(failure: Failure) -> Next<M> {
        Next::new(NextKind::Failed(failure))
    }

    /// Continues after this time even if the wait is not over by then; see [`crate::MachineCx::timed_out`].
    pub fn timeout(mut self, timeout: Duration) -> Next<M> {
        self.timeout = Some(timeout);
        self
    }

    /// The stage that follows, or that runs again; `None` if the machine ends. For tests of a step, as are the following.
    pub fn stage(&self) -> Option<&M> {
        match &self.to {
            NextKind::Next(stage)
            | NextKind::Wait(stage, _)
            | NextKind::Children(stage, _)
            | NextKind::Merge(stage, ..)
            | NextKind::Again(stage, _) => Some(stage),
            NextKind::Done(_) | NextKind::Stop(_) | NextKind::Failed(_) => None,
        }
    }

    /// What the machine returns, if it is done.
    pub fn output(&self) -> Option<&M::Output> {
        match &self.to {
            NextKind::Done(output) => Some(output),
            _ => None,
        }
    }

    /// Why the step or the machine failed.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.to {
            NextKind::Stop(failure) | NextKind::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// The signals that are waited for; `None` if it is not a wait for signals.
    pub fn signals(&self) -> Option<&WaitFor> {
        match &self.to {
            NextKind::Wait(_, signals) if !signals.names.is_empty() => Some(signals),
            _ => None,
        }
    }

    /// How many children are submitted and waited for.
    pub fn child_count(&self) -> usize {
        match &self.to {
            NextKind::Children(_, children) => children.len(),
            _ => 0,
        }
    }

    /// How long the machine waits: the time of a sleep or until the step runs again, or the timeout of a wait.
    pub fn wait_time(&self) -> Option<Duration> {
        match &self.to {
            NextKind::Again(_, after) => Some(*after),
            _ => self.timeout,
        }
    }

    /// Converts it into what the runtime commits.
    pub(super) async fn into_step_result(
        self,
        cx: &MachineCx,
        live: &LiveAttempt,
    ) -> Result<StepResult, Failure> {
        let Next { to, timeout } = self;
        let (attempt, ids) = (&*live.attempt, &live.services.ids);
        if timeout.is_some() && !matches!(to, NextKind::Wait(..) | NextKind::Children(..)) {
            let text = "a timeout was set where nothing is waited for; use it with `Next::wait` or `Next::children`, \
                        and `Machine::timeout` to limit a step";
            return Err(refused(text));
        }
        let encoded = |stage: &M| encode_stage(stage, attempt);
        Ok(match to {
            NextKind::Next(stage) => StepResult::Next(encoded(&stage)?),
            NextKind::Wait(_, WaitFor { nested: true, .. }) => {
                let text = "`WaitFor::any` and `WaitFor::all` take single signals, and cannot be nested; wait for one after the \
                            other, or distinguish them by their payload";
                return Err(refused(text));
            }
            NextKind::Wait(stage, signals) => {
                StepResult::Wait(encoded(&stage)?, Wait { condition: signals.into_condition(), timeout })
            }
            NextKind::Children(stage, children) => {
                let job = |child: Child| child.into_job(ids.job());
                let children = children.into_iter().map(job).collect::<Result<_, _>>();
                StepResult::Children {
                    stage: encoded(&stage)?,
                    children: children.map_err(refused)?,
                    timeout,
                }
            }
            NextKind::Merge(stage, names, merge) => {
                let ran = stage::current(&attempt.job).unwrap_or_default();
                return branch::request_merge(live, ran, encoded(&stage)?, names, *merge).await;
            }
            NextKind::Again(stage, after) => StepResult::Again { stage: encoded(&stage)?, after },
            NextKind::Done(output) => {
                branch::check_all_merged(cx, live).await?;
                let bytes = serde_json::to_vec(&output);
                let bytes =
                    bytes.map_err(|e| refused(format!("the output cannot be written as JSON ({e})")))?;
                StepResult::Done(windlass_model::Payload::json(bytes))
            }
            NextKind::Stop(failure) => StepResult::Stop(failure),
            NextKind::Failed(failure) => StepResult::Failed(failure),
        })
    }
}

impl<M: Machine + fmt::Debug> fmt::Debug for Next<M>
where
    M::Output: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Next");
        self.stage().map(|stage| text.field("stage", stage));
        self.output().map(|output| text.field("output", output));
        self.failure().map(|failure| text.field("failure", failure));
        self.signals().map(|signals| text.field("signals", signals));
        if let NextKind::Merge(_, branches, _) = &self.to {
            text.field("branches", branches);
        }
        if self.child_count() > 0 {
            text.field("children", &self.child_count());
        }
        self.wait_time().map(|time| text.field("wait_time", &time));
        text.finish()
    }
}

/// Encodes a stage.
fn encode_stage<M: Machine>(stage: &M, attempt: &Attempt) -> Result<Stage, Failure> {
    let (name, data) = stage::encode(stage).map_err(|why| refused(format!("the next stage {why}")))?;
    let job = &attempt.job;
    let unchanged = match (&job.stage, &job.data) {
        (Some(before), Some(old)) => *before == name && old.bytes == data,
        _ => stage::split(&job.input.bytes).is_some_and(|(before, old)| before == name && old == data),
    };
    Ok(Stage { name, data: windlass_model::Payload::json(data), unchanged })
}

fn refused(why: impl fmt::Display) -> Failure {
    Failure::stop(why).class(class::REFUSED)
}

/// The signals that a machine waits for. The name of a signal is a wait for one of that name.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass_model::Failure;
/// # use windlass_workflow::{Machine, MachineCx, Next, Signal, WaitFor};
/// #[derive(Serialize, Deserialize)]
/// struct Approve { by: String }
///
/// impl Signal for Approve {
///     const NAME: &'static str = "approve";
/// }
///
/// #[derive(Serialize, Deserialize)]
/// struct Reject { why: String }
///
/// impl Signal for Reject {
///     const NAME: &'static str = "reject";
/// }
///
/// #[derive(Serialize, Deserialize)]
/// enum Release { Ask, Answered }
///
/// impl Machine for Release {
///     const KIND: &'static str = "release";
///     type Output = String;
///     type Error = Failure;
///
///     async fn step(self, cx: &MachineCx) -> Result<Next<Release>, Failure> {
///         if let Release::Ask = self {
///             let answer = WaitFor::any([WaitFor::receive::<Approve>(), WaitFor::receive::<Reject>()]);
///             return Ok(Next::wait(Release::Answered, answer));
///         }
///         Ok(match cx.receive::<Reject>()? {
///             Some(Reject { why }) => Next::stop(why),
///             None => Next::done("released".to_owned()),
///         })
///     }
/// }
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct WaitFor {
    names: Vec<SignalName>,
    needs: u32,
    /// Whether `any` or `all` was given anything but single signals.
    nested: bool,
}

impl WaitFor {
    /// One signal of this name. The next step sees the oldest one; others stay for later waits.
    pub fn signal(name: impl Into<String>) -> WaitFor {
        WaitFor { names: vec![SignalName { name: name.into(), every: false }], needs: 1, nested: false }
    }

    /// One signal of this type, by its name. The next step reads it with [`crate::MachineCx::receive`].
    pub fn receive<S: Signal>() -> WaitFor {
        WaitFor::signal(S::NAME)
    }

    /// At least one signal of this type, by its name. The next step reads all that have arrived by then with
    /// [`crate::MachineCx::receive_all`].
    pub fn receive_all<S: Signal>() -> WaitFor {
        WaitFor::signals(S::NAME)
    }

    /// At least one signal of this name. The next step sees all that have arrived by then.
    pub fn signals(name: impl Into<String>) -> WaitFor {
        WaitFor { names: vec![SignalName { name: name.into(), every: true }], needs: 1, nested: false }
    }

    /// The first of these that arrives. The next step sees that one; the others stay for later waits.
    pub fn any<W: Into<WaitFor>>(signals: impl IntoIterator<Item = W>) -> WaitFor {
        let (names, nested) = flatten(signals);
        WaitFor { names, needs: 1, nested }
    }

    /// Signals of all these names, of which the step sees every one.
    pub(super) fn every(mut names: Vec<String>) -> WaitFor {
        names.sort();
        names.dedup();
        WaitFor::all(names.into_iter().map(WaitFor::signals))
    }

    pub(super) fn into_condition(self) -> WaitCondition {
        WaitCondition::Signals { names: self.names, needs: self.needs }
    }

    /// All of these. After a timeout the next step sees those that have arrived.
    pub fn all<W: Into<WaitFor>>(signals: impl IntoIterator<Item = W>) -> WaitFor {
        let (names, nested) = flatten(signals);
        WaitFor { needs: names.len() as u32, names, nested }
    }
}

impl From<&str> for WaitFor {
    fn from(name: &str) -> WaitFor {
        WaitFor::signal(name)
    }
}

impl From<String> for WaitFor {
    fn from(name: String) -> WaitFor {
        WaitFor::signal(name)
    }
}

/// Collects all names, and whether any wait is not for a single signal.
fn flatten<W: Into<WaitFor>>(signals: impl IntoIterator<Item = W>) -> (Vec<SignalName>, bool) {
    let mut nested = false;
    let mut names = Vec::new();
    for wait in signals {
        let wait: WaitFor = wait.into();
        nested |= wait.nested || wait.names.len() != 1;
        names.extend(wait.names);
    }
    (names, nested)
}
