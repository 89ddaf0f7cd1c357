//! The answers of a store, which an engine of this process has open.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use serde_json::Value;
use windlass::{
    ControlOutcome, Engine, Error, JobId, Retry, State, SubmitJson, Time,
    model::Role,
    operate::{
        Acted, AuditFilter, BulkProgress, CreatedToken, Fork, ForkPoint, ForkProgress, Found, JobAction,
        Operator, Preview, PruneProgress, RedriveProgress, TokenRequest, Why,
        alerts::{AlertsView, Rule, RuleView},
        diagram::{JobDiagram, KindDiagrams},
        doctor::{self, Finding},
        views::{
            AuditPage, BranchesView, ChildList, ItemFilter, ItemList, JobList, JobView, Queues, RateLimits,
            ScheduleDetails, Schedules, SerialKeys, SignalWaitsView, ThroughputRequest, ThroughputView,
        },
    },
    store::{AdminAction, Filter, Pruned, Token, User},
};

use super::{Ended, NameError, NewJob, NewSchedule, OnProgress, SentSignal, Submitted, UserAction};
use crate::{
    args::Actor,
    program::{self, Program},
};

/// How many submits are in flight: enough to fill two transactions of a thousand each.
const IN_FLIGHT: usize = 2_000;

/// A store.
pub(crate) struct Store {
    engine: Engine,
    operator: Operator,
    /// Its address, for people.
    url: String,
    /// The name of the program, for hints.
    name: String,
    /// The alert rules of the settings of this machine.
    alert_rules: Vec<Rule>,
}

impl Store {
    pub(crate) fn new(engine: Engine, program: &Program) -> Store {
        let operator = engine.operator();
        let alert_rules = program.settings.alerts.rules();
        Store { engine, operator, url: program.display_url(), name: program.name.clone(), alert_rules }
    }

    /// Names the store in an error.
    fn explain(&self, error: Error) -> anyhow::Error {
        program::explain(error, &self.url, &self.name)
    }

    pub(crate) async fn find(&self, name: &str) -> anyhow::Result<Result<Found, NameError>> {
        match self.operator.find(name).await {
            Ok(found) => Ok(Ok(found)),
            Err(Error::NoSuchName(_)) => Ok(Err(NameError::Unknown)),
            Err(error @ Error::NoSuchChild { .. }) => Ok(Err(NameError::NoSuchChild(error.to_string()))),
            Err(error @ Error::AmbiguousName { .. }) => Ok(Err(NameError::Ambiguous(error.to_string()))),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn jobs(&self, filter: &Filter) -> anyhow::Result<JobList> {
        Ok(JobList::read(&self.operator, filter).await?)
    }

    pub(crate) async fn children(
        &self,
        parent: JobId,
        branch: Option<&str>,
        filter: &Filter,
        after: Option<JobId>,
    ) -> anyhow::Result<ChildList> {
        let read = ChildList::read(&self.operator, parent, branch, filter, after);
        read.await.map_err(|error| self.explain(error))
    }

    pub(crate) async fn job(&self, id: JobId, entries: Option<usize>) -> anyhow::Result<Option<JobView>> {
        Ok(JobView::read(&self.operator, id, entries).await?)
    }

    pub(crate) async fn why(&self, id: JobId) -> anyhow::Result<Option<Why>> {
        Ok(self.operator.why(id).await?)
    }

    pub(crate) async fn branches(
        &self,
        job: JobId,
        branch: Option<&str>,
        explain: bool,
    ) -> anyhow::Result<BranchesView> {
        let read = BranchesView::read(&self.operator, job, branch).await;
        let mut view = read.map_err(|error| self.explain(error))?;
        if explain {
            view.explain_stalls(&self.operator).await?;
        }
        Ok(view)
    }

    pub(crate) async fn items(
        &self,
        job: JobId,
        branch: Option<&str>,
        only: ItemFilter,
        after: Option<&str>,
        limit: usize,
    ) -> anyhow::Result<ItemList> {
        let read = ItemList::read(&self.operator, job, branch, only, after, limit);
        read.await.map_err(|error| self.explain(error))
    }

    pub(crate) async fn job_diagram(&self, id: JobId) -> anyhow::Result<Option<JobDiagram>> {
        Ok(JobDiagram::read(&self.operator, id).await?)
    }

    pub(crate) async fn kind_diagrams(
        &self,
        kind: &str,
        version: Option<i32>,
        limit: Option<usize>,
    ) -> anyhow::Result<KindDiagrams> {
        Ok(KindDiagrams::read(&self.operator, kind, version, limit).await?)
    }

    pub(crate) async fn queues(&self) -> anyhow::Result<Queues> {
        Ok(Queues::read(&self.operator).await?)
    }

    pub(crate) async fn throughput(&self, request: &ThroughputRequest) -> anyhow::Result<ThroughputView> {
        Ok(ThroughputView::read(&self.operator, request).await?)
    }

    pub(crate) async fn signal_waits(
        &self,
        kinds: &[String],
        signal: Option<&str>,
        since: Duration,
    ) -> anyhow::Result<SignalWaitsView> {
        let signal = signal.map(str::to_owned);
        Ok(SignalWaitsView::read(&self.operator, kinds.to_vec(), signal, since).await?)
    }

    pub(crate) async fn rate_limits(&self) -> anyhow::Result<RateLimits> {
        Ok(RateLimits::read(&self.operator).await?)
    }

    pub(crate) async fn serial_keys(&self, key: Option<&str>, limit: usize) -> anyhow::Result<SerialKeys> {
        Ok(SerialKeys::read(&self.operator, key, limit).await?)
    }

    pub(crate) async fn schedules(&self) -> anyhow::Result<Schedules> {
        Ok(Schedules::read(&self.operator).await?)
    }

    pub(crate) async fn schedule(&self, name: &str, limit: usize) -> anyhow::Result<Option<ScheduleDetails>> {
        Ok(ScheduleDetails::read(&self.operator, name, limit).await?)
    }

    pub(crate) async fn audit(&self, filter: &AuditFilter) -> anyhow::Result<AuditPage> {
        Ok(AuditPage::read(&self.operator, filter).await?)
    }

    pub(crate) async fn tokens(&self) -> anyhow::Result<(Vec<Token>, Time)> {
        Ok((self.operator.tokens().await?, self.operator.inspect().clock().await?))
    }

    pub(crate) async fn users(&self) -> anyhow::Result<(Vec<User>, Time)> {
        Ok((self.operator.users().await?, self.operator.inspect().clock().await?))
    }

    pub(crate) async fn alerts(&self, limit: usize, only_open: bool) -> anyhow::Result<AlertsView> {
        Ok(AlertsView::read(&self.operator, limit, only_open).await?)
    }

    pub(crate) async fn alert_rules(&self) -> anyhow::Result<Vec<RuleView>> {
        Ok(self.alert_rules.iter().map(RuleView::from).collect())
    }

    pub(crate) async fn mute_alerts(
        &self,
        rule: &str,
        subject: Option<&str>,
        span: Option<Duration>,
        actor: &Actor,
    ) -> anyhow::Result<ControlOutcome> {
        Ok(actor.control(&self.engine).mute_alerts(&self.alert_rules, rule, subject, span).await?)
    }

    pub(crate) async fn unmute_alerts(
        &self,
        rule: &str,
        subject: Option<&str>,
        actor: &Actor,
    ) -> anyhow::Result<ControlOutcome> {
        Ok(actor.control(&self.engine).unmute_alerts(rule, subject).await?)
    }

    pub(crate) async fn test_alert(&self, rule: &str, actor: &Actor) -> anyhow::Result<ControlOutcome> {
        match self.alert_rules.iter().find(|known| known.name == rule) {
            Some(rule) => Ok(actor.control(&self.engine).test_alert(rule, None).await?),
            None => Ok(ControlOutcome::Unknown),
        }
    }

    pub(crate) async fn has_worker(&self) -> anyhow::Result<bool> {
        Ok(self.operator.inspect().workers().await?.iter().any(|worker| worker.alive))
    }

    pub(crate) async fn act(
        &self,
        jobs: &[JobId],
        action: JobAction,
        actor: &Actor,
    ) -> anyhow::Result<Vec<Acted>> {
        Ok(actor.control(&self.engine).act_on_each(jobs, action).await?)
    }

    pub(crate) async fn cancel_tree(
        &self,
        job: JobId,
        grace: Duration,
        actor: &Actor,
    ) -> anyhow::Result<Acted> {
        Ok(actor.control(&self.engine).cancel_tree(job, grace).await?)
    }

    pub(crate) async fn preview(&self, filter: &Filter, action: JobAction) -> anyhow::Result<Preview> {
        Ok(self.operator.control("").bulk(filter.clone(), action).preview().await?)
    }

    pub(crate) async fn bulk(
        &self,
        filter: &Filter,
        action: JobAction,
        rate: Option<u32>,
        actor: &Actor,
        on_progress: OnProgress<'_, BulkProgress>,
    ) -> anyhow::Result<BulkProgress> {
        let bulk = actor.control(&self.engine).bulk(filter.clone(), action);
        let bulk = match rate {
            Some(rate) => bulk.per_second(rate),
            None => bulk,
        };
        Ok(bulk.run(on_progress).await?)
    }

    pub(crate) async fn redrive(
        &self,
        job: JobId,
        branch: Option<&str>,
        rate: Option<u32>,
        actor: &Actor,
        on_progress: OnProgress<'_, RedriveProgress>,
    ) -> anyhow::Result<RedriveProgress> {
        let redrive = actor.control(&self.engine).redrive(job, branch);
        let redrive = match rate {
            Some(rate) => redrive.per_second(rate),
            None => redrive,
        };
        redrive.run(on_progress).await.map_err(|error| self.explain(error))
    }

    fn forking(&self, point: &ForkPoint, actor: &Actor) -> Fork {
        actor.control(&self.engine).fork().at(point.clone())
    }

    pub(crate) async fn fork(
        &self,
        job: JobId,
        point: &ForkPoint,
        key: Option<&str>,
        actor: &Actor,
    ) -> anyhow::Result<JobId> {
        if self.engine.inspect().job(job).await?.is_none() {
            return Err(self.explain(Error::NoSuchJob(job)));
        }
        let fork = self.forking(point, actor);
        let fork = match key {
            Some(key) => fork.key(key),
            None => fork,
        };
        Ok(fork.run(job).await?)
    }

    pub(crate) async fn fork_preview(&self, filter: &Filter) -> anyhow::Result<Preview> {
        Ok(self.operator.control("").fork().preview(filter).await?)
    }

    pub(crate) async fn fork_each(
        &self,
        filter: &Filter,
        point: &ForkPoint,
        actor: &Actor,
        on_progress: OnProgress<'_, ForkProgress>,
    ) -> anyhow::Result<ForkProgress> {
        Ok(self.forking(point, actor).each(filter.clone(), on_progress).await?)
    }

    pub(crate) async fn prune(
        &self,
        state: State,
        age: Duration,
        kind: Option<&str>,
        actor: &Actor,
        on_progress: OnProgress<'_, PruneProgress>,
    ) -> anyhow::Result<PruneProgress> {
        let on_batch = |pruned: &Pruned| on_progress(&PruneProgress::from(pruned));
        let pruned = actor.control(&self.engine).prune(state, age, kind, on_batch).await?;
        Ok(PruneProgress::from(&pruned))
    }

    pub(crate) async fn administer(
        &self,
        action: &AdminAction,
        actor: &Actor,
    ) -> anyhow::Result<ControlOutcome> {
        Ok(actor.control(&self.engine).administer(action).await?)
    }

    pub(crate) async fn set_schedule(
        &self,
        new: &NewSchedule,
        actor: &Actor,
    ) -> anyhow::Result<(ControlOutcome, Time)> {
        let mut schedule = self
            .engine
            .schedule_json(&new.name, new.calendar.clone(), &new.kind, new.version, &new.input)
            .overlap(new.overlap)
            .catch_up(new.catch_up)
            .priority(new.priority)
            .settings(|settings| {
                settings.retry = new.attempts.map(Retry::times);
                settings.timeout = new.timeout;
                settings.serial = new.serial.clone().map(Box::new);
                settings.rate = new.rate.clone().map(Box::new);
            });
        if new.is_unchecked {
            schedule = schedule.unchecked();
        }
        if let Some(queue) = &new.queue {
            schedule = schedule.queue(queue);
        }
        for tag in &new.tags {
            schedule = schedule.tag(tag);
        }
        let outcome = match actor.schedules(schedule).await? {
            true => ControlOutcome::Done,
            false => ControlOutcome::Already("it is so already".into()),
        };
        Ok((outcome, self.operator.inspect().clock().await?))
    }

    pub(crate) async fn create_token(
        &self,
        request: &TokenRequest,
        actor: &Actor,
    ) -> anyhow::Result<(Token, String)> {
        let created = actor.control(&self.engine).create_token(request).await?;
        let CreatedToken { token, text } = created.map_err(anyhow::Error::msg)?;
        Ok((token, text))
    }

    pub(crate) async fn revoke_token(&self, token: &str, actor: &Actor) -> anyhow::Result<ControlOutcome> {
        Ok(actor.control(&self.engine).revoke_token(token).await?)
    }

    pub(crate) async fn create_user(
        &self,
        name: &str,
        role: Role,
        password: &str,
        actor: &Actor,
    ) -> anyhow::Result<User> {
        let created = actor.control(&self.engine).create_user(name, role, password).await?;
        created.map_err(anyhow::Error::msg)
    }

    pub(crate) async fn change_user(
        &self,
        user: &str,
        action: &UserAction,
        actor: &Actor,
    ) -> anyhow::Result<ControlOutcome> {
        let control = actor.control(&self.engine);
        Ok(match action {
            UserAction::SetPassword(password) => control.set_password(user, password).await?,
            UserAction::SetRole(role) => control.set_role(user, *role).await?,
            UserAction::Disable => control.disable_user(user).await?,
            UserAction::Enable => control.enable_user(user).await?,
            UserAction::EndSessions => control.end_sessions(user).await?,
        })
    }

    pub(crate) async fn signal(
        &self,
        job: JobId,
        name: &str,
        payload: &Value,
        dedup: Option<&str>,
    ) -> anyhow::Result<SentSignal> {
        let signal = self.engine.signal(job, name, payload);
        let sent = match dedup {
            Some(dedup) => signal.dedup(dedup).await,
            None => signal.await,
        };
        let delivery = sent.map_err(|error| self.explain(error))?;
        Ok(SentSignal { delivery, note: self.operator.why_not_awaited(job, name).await? })
    }

    pub(crate) async fn submit(
        &self,
        job: &NewJob,
        count: u32,
        on_submitted: &mut dyn FnMut(Submitted) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let submits = futures_util::stream::iter(0..count).map(|_| self.describe(job.clone()).into_future());
        let mut submitted = submits.buffered(IN_FLIGHT);
        while let Some(job) = submitted.try_next().await? {
            let (id, is_new, differs, replaced) = (job.id(), job.is_new(), job.differs(), job.replaced());
            on_submitted(Submitted { id, is_new, differs, replaced })?;
        }
        Ok(())
    }

    fn describe(&self, job: NewJob) -> SubmitJson<'_> {
        let mut submit = self.engine.submit_json(&job.kind, job.version, job.input).priority(job.priority);
        if job.is_unchecked {
            submit = submit.unchecked();
        }
        macro_rules! set {
            ($($setting:ident($value:expr);)*) => {$(
                if let Some(value) = $value {
                    submit = submit.$setting(value);
                }
            )*};
        }
        set! {
            key(job.key);
            queue(job.queue);
            delay(job.delay);
            at(job.at);
            deadline(job.deadline_at);
            options(job.options);
            retry(job.attempts.map(Retry::times));
            timeout(job.timeout);
            trace(job.trace);
            unique(job.unique);
            serial(job.serial);
            rate(job.rate);
            parent(job.parent);
        }
        submit = job.tags.iter().fold(submit, |submit, tag| submit.tag(tag));
        job.signals.iter().fold(submit, |submit, (name, payload)| submit.signal(name, payload))
    }

    pub(crate) async fn result(&self, job: JobId) -> anyhow::Result<Ended> {
        match self.engine.result::<Value>(job).await {
            Ok(output) => Ok(Ended::Done(output)),
            Err(error) => Ended::error(error),
        }
    }

    /// Checks the store by its address, and what is in it if it can be used.
    pub(crate) async fn doctor(program: &Program) -> Vec<Finding> {
        let store = doctor::check_store(program.url()).await;
        let mut findings = store.findings;
        if store.is_usable {
            match program.reader().await {
                Ok(engine) => findings.extend(engine.operator().doctor().await),
                Err(error) => findings.push(Finding::fail("store", format!("{error:#}"))),
            }
        }
        findings
    }
}
