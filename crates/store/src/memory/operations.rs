//! Records of operations.

use super::*;
use crate::{
    ControlOutcome, NewOperation, Operation, OperationEnd, OperationId, OperationProgress, OperationState,
    Operations,
    control::check_actor,
    operations::{STOP_REQUESTED, error_of, kept, outcome},
};

impl Operations for Memory {
    fn add_operation<'a>(&'a self, now: Now, new: &'a NewOperation, actor: &'a Actor) -> Fut<'a, bool> {
        self.run(now, |inner, now| {
            new.check(actor)?;
            if inner.operations.contains_key(&new.id) {
                return Ok(false);
            }
            inner.operations.insert(new.id, Operation::begin(new, now, actor));
            Ok(true)
        })
    }

    fn update_operation<'a>(
        &'a self,
        now: Now,
        id: OperationId,
        progress: &'a OperationProgress,
        ended: Option<&'a OperationEnd>,
    ) -> Fut<'a, bool> {
        self.run(now, |inner, now| {
            let Some(operation) = inner.operations.get_mut(&id) else { return Ok(true) };
            if operation.ended_at.is_none() {
                (operation.progress, operation.updated_at) = (kept(progress), now);
                if let Some(end) = ended {
                    operation.ended_at = Some(now);
                    (operation.state, operation.error) = (OperationState::of_end(end), error_of(end));
                }
            }
            Ok(operation.stop_requested)
        })
    }

    fn request_stop<'a>(&'a self, now: Now, id: OperationId, actor: &'a Actor) -> Fut<'a, ControlOutcome> {
        self.run(now, |inner, now| {
            check_actor(actor)?;
            let Some(operation) = inner.operations.get_mut(&id) else { return Ok(ControlOutcome::Unknown) };
            if operation.ended_at.is_some() {
                return Ok(outcome::ended(operation.state));
            }
            if operation.stop_requested {
                return Ok(outcome::requested_before());
            }
            operation.stop_requested = true;
            inner.log(now, STOP_REQUESTED, &id.to_string(), actor);
            Ok(ControlOutcome::Done)
        })
    }

    fn operation(&self, now: Now, id: OperationId) -> Fut<'_, Option<Operation>> {
        self.run(now, |inner, now| Ok(inner.operations.get(&id).map(|operation| read(operation, now))))
    }

    fn operations(&self, now: Now, before: Option<OperationId>, limit: usize) -> Fut<'_, Vec<Operation>> {
        self.run(now, |inner, now| {
            let newest = inner.operations.values().rev();
            let wanted = newest.filter(|operation| before.is_none_or(|before| operation.id < before));
            Ok(wanted.take(limit).map(|operation| read(operation, now)).collect())
        })
    }

    fn prune_operations(&self, before: Time) -> Fut<'_, usize> {
        self.run(None, |inner, _| {
            let all = inner.operations.len();
            inner.operations.retain(|_, operation| operation.updated_at >= before);
            Ok(all - inner.operations.len())
        })
    }
}

/// A record as of a time.
fn read(operation: &Operation, now: Time) -> Operation {
    Operation { state: operation.state.at(operation.updated_at, now), ..operation.clone() }
}
