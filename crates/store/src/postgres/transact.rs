//! Writes of the caller's own and a change, in one transaction.
//!
//! The work runs on connections of its own pool, with the settings and the search path of the URL's user: a long work blocks no
//! other verb, and the store's planner settings do not affect its statements. Once the work is done, the rest of the transaction
//! is the store's.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Instant};

use futures_util::FutureExt;
use windlass_model::{Change, CommitOutcome};

use super::{
    Postgres, branch,
    caller_tx::{CallerTx, PostgresTx},
    commit::{commit_in, refusal},
    conn::Conn,
    errors::{Class, PgError},
    names::Names,
    pool::{IDLE_CALLER_CONNS, PooledConn},
    serial,
    tx::{Executor, Tx},
};
use crate::{Error, Now, Work, tx};

/// Begins the transaction and resets what an earlier work has set. The store's statements rely on seeing what was committed while
/// they waited for a lock. The last statement marks the transaction until its end, and because it is a query, the isolation level
/// cannot be changed after it.
const BEGIN: &str = "begin isolation level read committed, read write, not deferrable; reset all; discard temp; \
                     select set_config('windlass.work', 'begun', true)";

/// Reads the mark, which is gone if the work has ended the transaction.
const READ_MARK: &str = "select current_setting('windlass.work', true)";

pub(super) async fn transact(
    store: &Postgres,
    now: Now,
    work: Work<'_>,
) -> Result<Option<CommitOutcome>, Error> {
    #[cfg(feature = "sqlite")]
    if let Work::Sqlite(_) = work {
        return Err(Error::Config(
            "this store is PostgreSQL, and the transaction is written for SQLite; use the form for PostgreSQL, or the one for \
             both"
                .into(),
        ));
    }
    let (mut conn, answer) = run(store, work).await?;
    let tx = Tx::adopt(&mut conn);
    let change = match answer {
        Ok(Some(change)) => change,
        Ok(None) => {
            tx.rollback().await;
            return Ok(None);
        }
        Err(panic) => {
            tx.rollback().await;
            std::panic::resume_unwind(panic);
        }
    };
    let outcome = match write(store, &tx, now, &change).await {
        Ok(outcome @ (CommitOutcome::Committed | CommitOutcome::Halted)) => {
            match commit(store, &tx, now).await {
                Ok(()) => Ok(outcome),
                // A deferred constraint is checked at the commit: nothing was written.
                Err(Error::Refused(why)) => Ok(CommitOutcome::Refused(why)),
                Err(error) => Err(error),
            }
        }
        Ok(outcome) => {
            tx.rollback().await;
            Ok(outcome)
        }
        Err(error) => {
            tx.rollback().await;
            match error {
                Error::Refused(why) => Ok(CommitOutcome::Refused(why)),
                error => Err(error),
            }
        }
    };
    store.shared.floors.lowered(i64::MIN);
    outcome.map(Some)
}

/// Commits, and notifies the parents of branches over another connection, whose settings are the store's.
async fn commit(store: &Postgres, tx: &Tx<'_>, now: Now) -> Result<(), Error> {
    serial::fill_slots(tx).await?;
    let to_check = branch::write_counts(tx).await?;
    tx.commit().await?;
    if !to_check.is_empty() {
        match store.conn().await {
            Ok(mut conn) => {
                let met = branch::find_met(Executor::Conn(&conn), &to_check).await;
                branch::notify_met(store, &mut conn, now, met).await
            }
            Err(error) => {
                tracing::debug!(%error, "parents of branches were not notified; the next poll notifies them")
            }
        }
    }
    Ok(())
}

/// What a work returns, or its panic.
type Answer = Result<Option<Change>, Box<dyn Any + Send>>;

/// Runs a work. Returns its answer, and the connection on which its transaction is open. An idle connection may have been lost
/// unnoticed: then another is tried, unless the work has begun.
async fn run<'s>(store: &'s Postgres, work: Work<'_>) -> Result<(PooledConn<'s>, Answer), Error> {
    let mut tries = 0;
    let mut conn = loop {
        let mut conn = store.shared.caller_pool.get().await?;
        let started = Instant::now();
        match begin(&mut conn).await {
            Ok(()) => break conn,
            // A server that has not answered on this connection would not answer on the next one either.
            Err(Error::Unavailable(_))
                if tries < IDLE_CALLER_CONNS && started.elapsed() < conn.patience() =>
            {
                tries += 1
            }
            Err(error) => return Err(error),
        }
    };
    let mut checked = Ok(());
    let answer = match work {
        Work::Postgres(work) => {
            let lent = PostgresTx::new(&conn.client);
            AssertUnwindSafe(async { work.run(lent).await }).catch_unwind().await
        }
        Work::Tx(work) => {
            let (lent, guard) = tx::Tx::new(CallerTx::new(PostgresTx::new(&conn.client)));
            let answer = AssertUnwindSafe(async { work.run(lent).await }).catch_unwind().await;
            if let Ok(Some(_)) = &answer {
                checked = guard.check();
            }
            answer
        }
        #[cfg(feature = "sqlite")]
        Work::Sqlite(_) => unreachable!("refused before"),
    };
    // Whoever has kept the client can still send statements over it. Without an end of the transaction, the connection is closed.
    if Arc::get_mut(&mut conn.client).is_none() {
        return match answer {
            Ok(_) => Err(tx::leaked()),
            Err(panic) => std::panic::resume_unwind(panic),
        };
    }
    if let Err(error) = checked {
        Tx::adopt(&mut conn).rollback().await;
        return Err(error);
    }
    Ok((conn, answer))
}

/// Begins a transaction.
async fn begin(conn: &mut Conn) -> Result<(), Error> {
    let patience = conn.patience();
    conn.note_begin();
    let begun = tokio::time::timeout(patience, conn.client.batch_execute(BEGIN)).await;
    begun.map_err(|_| PgError::no_answer(patience))?.map_err(PgError::from)?;
    Ok(())
}

/// Writes the change in the rest of the transaction.
async fn write(store: &Postgres, tx: &Tx<'_>, now: Now, change: &Change) -> Result<CommitOutcome, Error> {
    let mut names = Names::default();
    if let Some(why) = refusal(store, change, &mut names).await? {
        return Ok(CommitOutcome::Refused(why));
    }
    take_over(tx).await?;
    Ok(commit_in(store, tx, now, change, &names).await?.unwrap_or(CommitOutcome::Fenced))
}

/// Makes the rest of the transaction the store's. Fails if the work has ended the transaction by itself.
async fn take_over(tx: &Tx<'_>) -> Result<(), Error> {
    match tx.take_over(READ_MARK).await {
        Ok(values) if values.first().and_then(Option::as_deref) == Some("begun") => Ok(()),
        Ok(_) => Err(Error::Fault(
            "the work has ended the transaction by itself, so that what it wrote and the change could not be \
             committed together; leave that to the store"
                .into(),
        )),
        Err(PgError { class: Class::Aborted, .. }) => Err(Error::Fault(
            "a statement of the work failed, and with it the whole transaction, but the work returned a change; let it \
             return none when a statement fails"
                .into(),
        )),
        Err(error) => Err(error.into()),
    }
}
