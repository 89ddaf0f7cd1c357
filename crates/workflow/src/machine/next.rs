//! What follows from a step.

use std::{fmt, time::Duration};

use windlass_model::{Failure, Merge, Wait, WaitCondition, failure::class, wait::SignalName};
use windlass_runtime::{Attempt, Stage, StepResult};

use super::{Machine, StepCx, branch, stage};
use crate::Child;

/// What follows from a step of a machine.
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

    /// Goes on in this state, as soon as that is committed. The signals that the step was shown are consumed.
    pub fn to(state: M) -> Next<M> {
        Next::new(NextKind::Next(state))
    }

    /// Goes on in this state when signals have come: see [`signal`], [`signals`], [`any`] and [`all`]. Those that came
    /// before count.
    pub fn wait(state: M, signals: WaitFor) -> Next<M> {
        Next::new(NextKind::Wait(state, signals))
    }

    /// Submits jobs and goes on in this state when all of them have ended, however they did; [`crate::StepCx::children`]
    /// tells how. Goes on at once if there are none, or all of them were there before under their keys.
    pub fn children(state: M, children: impl IntoIterator<Item = Child>) -> Next<M> {
        Next::new(NextKind::Children(state, children.into_iter().collect()))
    }

    /// Goes on in this state when branches that this step, or one before it, has opened are merged by these rules, well or
    /// badly; [`crate::StepCx::merged`] tells how.
    pub fn merge<N: Into<String>>(state: M, branches: impl IntoIterator<Item = N>, merge: Merge) -> Next<M> {
        let names = branches.into_iter().map(Into::into).collect();
        Next::new(NextKind::Merge(state, names, Box::new(merge)))
    }

    /// Goes on in this state so much later.
    pub fn sleep(state: M, span: Duration) -> Next<M> {
        let nothing = WaitFor { names: Vec::new(), needs: 1, nested: false };
        Next::new(NextKind::Wait(state, nothing)).timeout(span)
    }

    /// Runs the same step again, so much later. What changed in the fields of the state is kept; another variant is another
    /// step, and refused: see [`Next::sleep`]. Signals are not consumed.
    pub fn retry_after(state: M, after: Duration) -> Next<M> {
        Next::new(NextKind::Again(state, after))
    }

    /// The machine is done, with this output.
    pub fn done(output: M::Output) -> Next<M> {
        Next::new(NextKind::Done(output))
    }

    /// The machine has failed, whatever the retry policy says.
    pub fn stop(why: impl fmt::Display) -> Next<M> {
        Next::new(NextKind::Stop(Failure::stop(why)))
    }

    /// The same with all that is to be kept of the error.
    pub fn fail(failure: Failure) -> Next<M> {
        Next::new(NextKind::Stop(failure))
    }

    /// The retry policy of the state decides what follows from this error.
    pub fn by_policy(failure: Failure) -> Next<M> {
        Next::new(NextKind::Failed(failure))
    }

    /// Goes on when this time is over, if what is waited for has not come by then; [`crate::StepCx::timed_out`] tells.
    pub fn timeout(mut self, timeout: Duration) -> Next<M> {
        self.timeout = Some(timeout);
        self
    }

    /// What that means to the runtime, or what is wrong with it.
    pub(super) async fn into_step_result(self, cx: &StepCx) -> Result<StepResult, Failure> {
        let Next { to, timeout } = self;
        let (attempt, ids) = (&*cx.attempt, &cx.bound.ids);
        if timeout.is_some() && !matches!(to, NextKind::Wait(..) | NextKind::Children(..)) {
            let text = "a timeout was set where nothing is waited for; use it with `Next::wait` or `Next::children`, \
                        and `Machine::timeout` to limit a step";
            return Err(refused(text));
        }
        let stage = |state: &M| kept(state, attempt);
        Ok(match to {
            NextKind::Next(state) => StepResult::Next(stage(&state)?),
            NextKind::Wait(_, WaitFor { nested: true, .. }) => {
                let text = "`any` and `all` take single signals, and cannot be put into each other; wait for one after the \
                            other, or tell them apart by their payload";
                return Err(refused(text));
            }
            NextKind::Wait(state, WaitFor { names, needs, .. }) => {
                let what = WaitCondition::Signals { names, needs };
                StepResult::Wait(stage(&state)?, Wait { condition: what, timeout })
            }
            NextKind::Children(state, children) => {
                let job = |child: Child| child.into_job(ids.job());
                let children = children.into_iter().map(job).collect::<Result<_, _>>();
                StepResult::Children { stage: stage(&state)?, children: children.map_err(refused)?, timeout }
            }
            NextKind::Merge(state, names, merge) => {
                let ran = stage::current(&attempt.job).unwrap_or_default();
                return branch::request_merge(cx, ran, stage(&state)?, names, *merge).await;
            }
            NextKind::Again(state, after) => StepResult::Again { stage: stage(&state)?, after },
            NextKind::Done(output) => {
                branch::check_all_merged(cx).await?;
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

/// A state as it is kept.
fn kept<M: Machine>(state: &M, attempt: &Attempt) -> Result<Stage, Failure> {
    let (name, data) = stage::encode(state).map_err(|why| refused(format!("the next state {why}")))?;
    let job = &attempt.job;
    let unchanged = match (&job.stage, &job.data) {
        (Some(before), Some(kept)) => *before == name && kept.bytes == data,
        _ => stage::split(&job.input.bytes).is_some_and(|(before, kept)| before == name && kept == data),
    };
    Ok(Stage { name, data: windlass_model::Payload::json(data), unchanged })
}

fn refused(why: impl fmt::Display) -> Failure {
    Failure::stop(why).class(class::REFUSED)
}

/// Which signals a machine waits for.
#[derive(Clone, PartialEq, Debug)]
pub struct WaitFor {
    names: Vec<SignalName>,
    needs: u32,
    /// Whether one that is more than a signal was put into another.
    nested: bool,
}

/// A signal of this name. The step that follows is shown one: the oldest there is. Others stay for later waits.
pub fn signal(name: impl Into<String>) -> WaitFor {
    WaitFor { names: vec![SignalName { name: name.into(), every: false }], needs: 1, nested: false }
}

/// At least one signal of this name. The step that follows is shown all that have come by then.
pub fn signals(name: impl Into<String>) -> WaitFor {
    WaitFor { names: vec![SignalName { name: name.into(), every: true }], needs: 1, nested: false }
}

/// Whichever of these comes first. The step that follows is shown that one; the others stay for later waits.
pub fn any(signals: impl IntoIterator<Item = WaitFor>) -> WaitFor {
    let (names, nested) = flat(signals);
    WaitFor { names, needs: 1, nested }
}

/// All of these. After a timeout the step is shown those that have come.
pub fn all(signals: impl IntoIterator<Item = WaitFor>) -> WaitFor {
    let (names, nested) = flat(signals);
    WaitFor { needs: names.len() as u32, names, nested }
}

/// All names, and whether they are not single signals.
fn flat(signals: impl IntoIterator<Item = WaitFor>) -> (Vec<SignalName>, bool) {
    let mut nested = false;
    let mut names = Vec::new();
    for wait in signals {
        nested |= wait.nested || wait.names.len() != 1;
        names.extend(wait.names);
    }
    (names, nested)
}
