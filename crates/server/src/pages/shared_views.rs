//! Views that several pages show, and that are the same for every reader: each is read at most once a second.

use std::{sync::Arc, time::Duration};

use windlass::{
    JobId,
    model::BranchNo,
    operate::{
        alerts::AlertsView,
        views::{
            BranchDetails, BranchFailures, Failures, OpenBranches, Queues, Schedules, ThroughputRequest,
            ThroughputView,
        },
    },
    store::{ThroughputBy, Token, UnsuccessfulFilter, User},
};

use super::{analytics::Analytics, bars::ItemMap, cache::Cache, page::PageCall, schedules::Ticks};
use crate::error::Error;

/// How many branches are listed.
const BRANCHES: usize = 100;
/// How many unsuccessful jobs are grouped.
const FAILURES: usize = 5_000;
/// Failures are grouped again at most so often: it reads thousands of rows.
const FAILURES_KEPT: Duration = Duration::from_secs(5);

/// How many open alerts are shown.
const ALERTS: usize = 200;

/// Ticks of schedules and sums of many hours are read again at most so often: there are many of them.
const TICKS_KEPT: Duration = Duration::from_secs(5);

/// Shared views.
pub(crate) struct SharedViews {
    queues: Cache<(), Queues>,
    branches: Cache<(), OpenBranches>,
    failures: Cache<(), Failures>,
    hour: Cache<(), ThroughputView>,
    alerts: Cache<(), AlertsView>,
    branch: Cache<(JobId, BranchNo), BranchDetails>,
    branch_failures: Cache<(JobId, BranchNo), BranchFailures>,
    users: Cache<(), Vec<User>>,
    tokens: Cache<(), Vec<Token>>,
    pub(super) schedules: Cache<(), Schedules>,
    pub(super) ticks: Cache<String, Ticks>,
    pub(super) analytics: Cache<&'static str, Analytics>,
}

impl SharedViews {
    pub(super) fn new(keep: Duration) -> SharedViews {
        SharedViews {
            queues: Cache::new(keep),
            branches: Cache::new(keep),
            failures: Cache::new(FAILURES_KEPT),
            hour: Cache::new(keep),
            alerts: Cache::new(keep),
            branch: Cache::new(keep),
            branch_failures: Cache::new(FAILURES_KEPT),
            users: Cache::new(keep),
            tokens: Cache::new(keep),
            schedules: Cache::new(keep),
            ticks: Cache::new(TICKS_KEPT),
            analytics: Cache::new(TICKS_KEPT),
        }
    }
}

impl SharedViews {
    /// Forgets all of them: they are read again.
    pub(super) fn clear(&self) {
        self.queues.clear();
        self.branches.clear();
        self.failures.clear();
        self.hour.clear();
        self.alerts.clear();
        self.branch.clear();
        self.branch_failures.clear();
        self.users.clear();
        self.tokens.clear();
        self.schedules.clear();
        self.ticks.clear();
        self.analytics.clear();
    }
}

impl PageCall {
    pub(super) fn views(&self) -> &SharedViews {
        &self.shared().pages.views
    }

    /// All queues, with how many jobs are in each.
    pub(super) async fn queues(&self) -> Result<Arc<Queues>, Error> {
        self.views().queues.get(&(), async || Ok(Queues::read(self.operator()).await?)).await
    }

    /// The newest branches that are not merged.
    pub(super) async fn open_branches(&self) -> Result<Arc<OpenBranches>, Error> {
        self.views()
            .branches
            .get(&(), async || Ok(OpenBranches::read(self.operator(), BRANCHES).await?))
            .await
    }

    /// The newest unsuccessful jobs in groups.
    pub(super) async fn failures(&self) -> Result<Arc<Failures>, Error> {
        let read =
            async || Ok(Failures::read(self.operator(), &UnsuccessfulFilter::default(), FAILURES).await?);
        self.views().failures.get(&(), read).await
    }

    /// A branch of a job.
    pub(super) async fn branch(&self, job: JobId, branch: BranchNo) -> Result<Arc<BranchDetails>, Error> {
        let cells = ItemMap::CELLS as usize;
        let read = async || {
            BranchDetails::read(self.operator(), job, branch, cells).await?.ok_or_else(super::branch::unknown)
        };
        self.views().branch.get(&(job, branch), read).await
    }

    /// The unsuccessful children of a branch.
    pub(super) async fn branch_failures(&self, of: &BranchDetails) -> Result<Arc<BranchFailures>, Error> {
        let read = async || Ok(BranchFailures::read(self.operator(), of.job, &of.branch, of.ends).await?);
        self.views().branch_failures.get(&(of.job, of.branch.number), read).await
    }

    /// The alerts that are open, and the mutes.
    pub(super) async fn alerts(&self) -> Result<Arc<AlertsView>, Error> {
        let read = async || Ok(AlertsView::read(self.operator(), ALERTS, true).await?);
        self.views().alerts.get(&(), read).await
    }

    /// All users, for administrators.
    pub(super) async fn users(&self) -> Result<Arc<Vec<User>>, Error> {
        self.views().users.get(&(), async || Ok(self.operator().users().await?)).await
    }

    /// All tokens, for administrators.
    pub(super) async fn tokens(&self) -> Result<Arc<Vec<Token>>, Error> {
        self.views().tokens.get(&(), async || Ok(self.operator().tokens().await?)).await
    }

    /// What ended in the last hour, by minute.
    pub(super) async fn last_hour(&self) -> Result<Arc<ThroughputView>, Error> {
        let since = Duration::from_secs(3_600);
        let request =
            ThroughputRequest { queues: Vec::new(), kinds: Vec::new(), since, by: ThroughputBy::Minute };
        self.views().hour.get(&(), async || Ok(ThroughputView::read(self.operator(), &request).await?)).await
    }
}
