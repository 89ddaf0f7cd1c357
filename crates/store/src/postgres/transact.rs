//! Writes of the caller's own and a change, in one transaction.
//!
//! The work runs on connections of its own pool, with the settings and the search path of the URL's user: a long work blocks no
//! other verb, and the store's planner settings do not affect its statements. Once the work is done, the rest of the transaction
//! is the store's.

use std::{any::Any, panic::AssertUnwindSafe, time::Instant};

use futures_util::FutureExt;
use tokio_postgres::IsolationLevel;
use windlass_model::{Change, CommitOutcome};

use super::{
    Postgres, branch,
    commit::{commit_in, refusal},
    conn::Conn,
    errors::{Class, PgError},
    names::Names,
    pool::{IDLE_CALLER_CONNS, PooledConn},
    serial,
    tx::{Executor, Tx},
};
use crate::{Error, Now, PostgresWork, Work};

/// Sent before the work: resets what an earlier work has set. The last statement marks the transaction until its end, and
/// because it is a query, the isolation level cannot be changed after it.
const MARK: &str = "reset all; discard temp; select set_config('windlass.work', 'begun', true)";

/// Reads the mark, which is gone if the work has ended the transaction.
const READ_MARK: &str = "select current_setting('windlass.work', true)";

pub(super) async fn transact(
    store: &Postgres,
    now: Now,
    work: Work<'_>,
) -> Result<Option<CommitOutcome>, Error> {
    let Work::Postgres(work) = work else {
        return Err(Error::Config(
            "this store is PostgreSQL, and the transaction is written for SQLite; use the form for PostgreSQL".into(),
        ));
    };
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
    let verdict = match write(store, &tx, now, &change).await {
        Ok(verdict @ (CommitOutcome::Committed | CommitOutcome::Halted)) => {
            match commit(store, &tx, now).await {
                Ok(()) => Ok(verdict),
                // A deferred constraint is checked at the commit: nothing was written.
                Err(Error::Refused(why)) => Ok(CommitOutcome::Refused(why)),
                Err(error) => Err(error),
            }
        }
        Ok(verdict) => {
            tx.rollback().await;
            Ok(verdict)
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
    verdict.map(Some)
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
async fn run<'s>(store: &'s Postgres, work: PostgresWork<'_>) -> Result<(PooledConn<'s>, Answer), Error> {
    let mut work = Some(work);
    let mut tries = 0;
    loop {
        let mut conn = store.shared.caller_pool.get().await?;
        let started = Instant::now();
        match run_on(&mut conn, &mut work).await {
            Ok(answer) => return Ok((conn, answer)),
            // A server that has not answered on this connection would not answer on the next one either.
            Err(Error::Unavailable(_))
                if tries < IDLE_CALLER_CONNS && started.elapsed() < conn.patience() =>
            {
                tries += 1
            }
            Err(error) => return Err(error),
        }
    }
}

/// Begins a transaction and runs a work in it. After an error, the work has not run.
async fn run_on(conn: &mut Conn, work: &mut Option<PostgresWork<'_>>) -> Result<Answer, Error> {
    let patience = conn.patience();
    let late = |_| PgError::no_answer(patience);
    conn.note_begin();
    // The store's statements rely on seeing what was committed while they waited for a lock.
    let begin = conn.client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
    let begin = begin.read_only(false).deferrable(false);
    let begun = tokio::time::timeout(patience, begin.start()).await;
    let transaction = begun.map_err(late)?.map_err(PgError::from)?;
    let marked = tokio::time::timeout(patience, transaction.batch_execute(MARK)).await;
    marked.map_err(late)?.map_err(PgError::from)?;
    let work = work.take().expect("it runs once");
    let answer = AssertUnwindSafe(async { work(&transaction).await }).catch_unwind().await;
    // Its drop would roll back, before the store has written.
    std::mem::forget(transaction);
    Ok(answer)
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
