//! Jobs that are ended from outside while they have something to undo: they are unwound first.
//!
//! A verb that ends jobs from outside has locked them, and knows which of them have something to undo. It does not end those but
//! makes them ready, with how they must end, and their own commit ends them. If they are ended from outside once more, they end
//! at once.

use uuid::Uuid;
use windlass_model::{Failure, Reason, Time, Unwind};

use super::{errors::PgError, serial, sql, tx::Tx};
use crate::{Actor, columns};

/// How a job ends that was cancelled.
pub(super) fn cancelled(actor: &Actor) -> Unwind {
    Unwind { reason: None, failure: actor.failure() }
}

/// How a job ends that fails from outside.
pub(super) fn failed(reason: Reason, failure: Failure) -> Unwind {
    Unwind { reason: Some(reason), failure }
}

/// Starts to unwind live jobs that are locked and not in the ready set: they leave wherever they are, and enter like new jobs.
pub(super) async fn start(tx: &Tx<'_>, now: Time, ids: &[Uuid], unwinds: &[Unwind]) -> Result<(), PgError> {
    if ids.is_empty() {
        return Ok(());
    }
    let unwinds: Vec<String> = unwinds.iter().map(columns::unwind_text).collect();
    serial::lock_keys(tx, ids).await?;
    tx.execute(sql::control::START_UNWIND, &[&ids, &unwinds, &now.micros(), &tx.count_writer]).await?;
    serial::enter_unsettled(tx, ids).await?;
    serial::settle(tx, ids).await
}
