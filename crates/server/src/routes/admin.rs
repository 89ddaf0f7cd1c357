//! The whole installation: the audit log, the doctor, deleting old jobs.

use axum::http::Method;
use windlass::{
    State,
    operate::{AuditFilter, PruneProgress, doctor::Finding, views::AuditPage},
    store::Pruned,
};

use super::{ADMINISTER, Answer, READ, Route, jobs::no_query, page_limit};
use crate::{
    call::Call,
    error::Error,
    input::{Span, input},
    progress,
    reply::Reply,
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/v1/audit", READ, "audit", "What people did, newest first", audit)
            .returns::<AuditPage>()
            .query::<AuditQuery>()
            .answers("The entries, and `next_before` for the next page"),
        Route::new(Method::GET, "/v1/doctor", READ, "doctor", "A check-up of the installation", check_up)
            .returns::<Vec<Finding>>()
            .answers("The findings")
            .untagged(),
        Route::new(Method::POST, "/v1/prune", ADMINISTER, "prune", "Delete jobs that ended long ago", prune)
            .returns::<PruneProgress>()
            .body::<PruneInput>()
            .answers("How many were deleted and kept; `interrupted` if it must be repeated for the rest")
            .progresses(),
    ]
}

input! {
    /// Which entries to list.
    AuditQuery {
        /// Only about this subject: a job's id, or the name of a queue, limit, serial key, schedule or token.
        subject: Option<String>,
        /// Only before this number: `next_before` of the previous page.
        before: Option<i64>,
        /// At most this many, from 1 to 1,000 [default: 50].
        limit: Option<u32>,
    }
}

async fn audit(call: Call) -> Answer {
    let AuditQuery { subject, before, limit } = call.query()?;
    call.principal.check_unlimited("entries of the audit log")?;
    let filter = AuditFilter { subject, before, limit: page_limit(limit)? };
    let page = AuditPage::read(call.operator(), &filter).await?;
    Reply::json_at(&page, page.now)
}

async fn check_up(call: Call) -> Answer {
    no_query(&call)?;
    call.principal.check_unlimited("checks")?;
    Reply::json(&*call.shared.checkup.run(call.engine()).await)
}

input! {
    /// Which jobs to delete.
    PruneInput {
        /// Jobs in this state: done, failed or cancelled.
        state: State,
        /// Jobs that ended longer ago than this.
        older_than: Span,
        /// Only of this kind.
        kind: Option<String>,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn prune(call: Call) -> Answer {
    no_query(&call)?;
    let PruneInput { state, older_than, kind, note } = call.body()?;
    call.principal.check_unlimited("old jobs")?;
    if !state.is_final() {
        return Err(Error::invalid(
            format!("{state} jobs have not ended and cannot be deleted"),
            "prune done, failed or cancelled jobs, and cancel unwanted jobs first",
        ));
    }
    let control = call.control(note);
    progress::run(&call, |mut on_progress| async move {
        let on_batch = |pruned: &Pruned| on_progress(&PruneProgress::from(pruned));
        let pruned = control.prune(state, older_than.0, kind.as_deref(), on_batch).await?;
        Ok(PruneProgress::from(&pruned))
    })
    .await
}
