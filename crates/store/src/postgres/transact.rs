//! Transactions of others that a change is committed with.
//!
//! They run on connections of their own, with the settings and the search path of the URL's user: a long one holds up
//! nobody, and how the store has its statements planned is not forced on those of others. Once the work is done, the rest
//! of the transaction is the store's.

use std::{any::Any, panic::AssertUnwindSafe, time::Instant};

use futures_util::FutureExt;
use tokio_postgres::IsolationLevel;
use windlass_model::{Change, CommitOutcome};

use super::{
    Postgres, branch,
    commit::{refusal, within},
    errors::sorted,
    names::Names,
    pool::{GUESTS_KEPT, Guard},
    serial,
};
use crate::{Error, Now, PostgresWork, Work};

/// What a connection is told at the beginning: whatever the work before left set is gone. What is set in the last statement
/// lasts as long as the transaction; and as that is a query, the isolation stays what it is.
const BEGUN: &str = "reset all; discard temp; select set_config('windlass.work', 'begun', true)";

/// Whether the transaction is still the same.
const SAME: &str = "select current_setting('windlass.work', true)";

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
    let (conn, answer) = run(store, work).await?;
    let change = match answer {
        Ok(Some(change)) => change,
        Ok(None) => {
            conn.rollback().await;
            return Ok(None);
        }
        Err(panic) => {
            conn.rollback().await;
            std::panic::resume_unwind(panic);
        }
    };
    let verdict = match write(store, &conn, now, &change).await {
        Ok(verdict @ (CommitOutcome::Committed | CommitOutcome::Halted)) => {
            match commit(store, &conn, now).await {
                Ok(()) => Ok(verdict),
                // Checked only now, at the end: nothing was committed.
                Err(Error::Refused(why)) => Ok(CommitOutcome::Refused(why)),
                Err(error) => Err(error),
            }
        }
        Ok(verdict) => {
            conn.rollback().await;
            Ok(verdict)
        }
        Err(error) => {
            conn.rollback().await;
            match error {
                Error::Refused(why) => Ok(CommitOutcome::Refused(why)),
                error => Err(error),
            }
        }
    };
    store.shared.floors.lowered(i64::MIN);
    verdict.map(Some)
}

/// Commits the transaction, and tells parents of branches what they wait to be told: over another connection, whose settings
/// are the store's.
async fn commit(store: &Postgres, conn: &Guard<'_>, now: Now) -> Result<(), Error> {
    serial::hand_over(conn).await?;
    let touched = branch::flush(conn).await?;
    conn.commit().await?;
    if !touched.is_empty() {
        match store.conn().await {
            Ok(conn) => {
                branch::notified(store, &conn, now, branch::read_watched(&conn, &touched).await).await
            }
            Err(error) => {
                tracing::debug!(%error, "what is to be told of branches is left to the next look at them")
            }
        }
    }
    Ok(())
}

/// What a work answers, or its panic.
type Answer = Result<Option<Change>, Box<dyn Any + Send>>;

/// Runs a work, and answers with the connection on which its transaction is open. A connection that was kept idle may have
/// been lost, which nothing has told: then another is tried, as long as the work has not begun.
async fn run<'s>(store: &'s Postgres, work: PostgresWork<'_>) -> Result<(Guard<'s>, Answer), Error> {
    let mut work = Some(work);
    let mut tries = 0;
    loop {
        let mut conn = store.shared.guests.get().await?;
        let began = Instant::now();
        match run_on(&mut conn, &mut work).await {
            Ok(answer) => return Ok((conn, answer)),
            // A server that says nothing would say nothing to the next one either.
            Err(Error::Unavailable(_)) if tries < GUESTS_KEPT && began.elapsed() < conn.patience => {
                tries += 1
            }
            Err(error) => return Err(error),
        }
    }
}

/// An error is one of the beginning: the work has not run.
async fn run_on(conn: &mut Guard<'_>, work: &mut Option<PostgresWork<'_>>) -> Result<Answer, Error> {
    let patience = conn.patience;
    let late = |_| Error::Unavailable(format!("PostgreSQL did not answer within {patience:?}"));
    conn.opening();
    // The store's statements rely on seeing what was committed while they waited for a lock.
    let begin = conn.client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
    let begin = begin.read_only(false).deferrable(false);
    let begun = tokio::time::timeout(patience, begin.start()).await;
    let transaction = begun.map_err(late)?.map_err(sorted)?;
    let told = tokio::time::timeout(patience, transaction.batch_execute(BEGUN)).await;
    told.map_err(late)?.map_err(sorted)?;
    let work = work.take().expect("it runs once");
    let answer = AssertUnwindSafe(async { work(&transaction).await }).catch_unwind().await;
    // It must not be rolled back here: the store has not written yet.
    std::mem::forget(transaction);
    Ok(answer)
}

/// Writes the change in what is left of the transaction, as the store writes.
async fn write(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Now,
    change: &Change,
) -> Result<CommitOutcome, Error> {
    let mut names = Names::default();
    if let Some(why) = refusal(store, change, &mut names).await? {
        return Ok(CommitOutcome::Refused(why));
    }
    take_over(conn).await?;
    Ok(within(store, conn, now, change, &names).await?.unwrap_or(CommitOutcome::Fenced))
}

/// Makes the rest of the transaction the store's: its search path, its settings. Whoever has ended the transaction by
/// themselves is told so.
async fn take_over(conn: &Guard<'_>) -> Result<(), Error> {
    let sql = format!("{SAME}; {}", conn.openings().takeover);
    match conn.run(&sql).await {
        Ok(values) if values.first().and_then(Option::as_deref) == Some("begun") => Ok(()),
        Ok(_) => Err(Error::Fault(
            "the work has ended the transaction by itself, so that what it wrote and the change could not be \
             committed together; leave that to the store"
                .into(),
        )),
        Err(Error::Fault(why)) if why.ends_with("(25P02)") => Err(Error::Fault(
            "a statement of the work failed, and with it the whole transaction, but the work went on; have it undone \
             when a statement fails"
                .into(),
        )),
        Err(error) => Err(error),
    }
}
