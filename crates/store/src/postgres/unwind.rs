//! Jobs that are to end from outside while there is something to undo: they are unwound first.
//!
//! Whoever ends jobs from outside has them locked, and knows which have something to undo. Those are not ended but become
//! ready, with how they are to end, and end by their own commit; whoever ends them from outside once more ends them at
//! once.

use uuid::Uuid;
use windlass_model::{Failure, Reason, Time, Unwind};

use super::{pool::Guard, serial, sql};
use crate::{Actor, Error, columns};

/// How a job ends that someone cancels.
pub(super) fn cancelled(by: &Actor) -> Unwind {
    Unwind { reason: None, failure: by.failure() }
}

/// How a job ends that fails from outside.
pub(super) fn failed(reason: Reason, failure: Failure) -> Unwind {
    Unwind { reason: Some(reason), failure }
}

/// Has live jobs unwound that are locked and in no ready set: they leave wherever they are, and enter as if they were new.
pub(super) async fn begin(
    conn: &Guard<'_>,
    now: Time,
    ids: &[Uuid],
    unwinds: &[Unwind],
) -> Result<(), Error> {
    if ids.is_empty() {
        return Ok(());
    }
    let unwinds: Vec<String> = unwinds.iter().map(columns::unwind_text).collect();
    serial::lock(conn, ids).await?;
    conn.execute(sql::control::START_UNWIND, &[&ids, &unwinds, &now.micros()]).await?;
    serial::enter_unsettled(conn, ids).await?;
    serial::settle(conn, ids).await
}
