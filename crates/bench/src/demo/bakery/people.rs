//! The people of the company: customers send photos, the office decides and approves, and now and then somebody acts on jobs, which the
//! audit log shows.

use std::time::Duration;

use windlass::{
    Control, Delivery, Engine, Error, Filter, JobId, Machine, State, Task, Workflow,
    store::{JobAction, Summary},
};

use super::{
    CardService, Every,
    complaint::{Complaint, Decision, Photo},
    kinds::office::{BackUpRecipes, ChargeCard, SERVICE_DOWN},
    wholesale::{Approval, WholesaleOrder},
};

const TICK: Duration = Duration::from_secs(1);
/// How many jobs somebody reads, newest first, to find one to act on.
const READ: usize = 100;
/// How long nobody approves an order after it came in.
const CONSIDERED: Duration = Duration::from_secs(30);
/// How many payments a second are retried when the card service answers again.
const RETRIES_PER_SECOND: u32 = 2;

/// What people do to jobs, in turns.
#[derive(Clone, Copy)]
enum Act {
    CancelOrder,
    PrioritizePayment,
    PauseComplaint,
    RetryOrder,
    ResumeComplaint,
}

const ACTS: [Act; 5] =
    [Act::CancelOrder, Act::PrioritizePayment, Act::PauseComplaint, Act::RetryOrder, Act::ResumeComplaint];

pub(super) struct People {
    engine: Engine,
    service: CardService,
    photo: Every,
    decision: Every,
    approval: Every,
    act: Every,
    /// How often somebody acted.
    acts: usize,
    /// The complaint that was paused last.
    paused: Option<JobId>,
    service_was_down: bool,
}

impl People {
    pub(super) fn new(engine: Engine, service: CardService) -> People {
        let every = |first, then| Every::new(Duration::from_secs(first), Duration::from_secs(then));
        People {
            engine,
            service,
            photo: every(20, 7),
            decision: every(15, 11),
            approval: every(40, 20),
            act: every(50, 40),
            acts: 0,
            paused: None,
            service_was_down: false,
        }
    }

    pub(super) async fn run(&mut self) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.tick().await {
                // A worker was faster: the job has ended. Or it was deleted.
                Ok(()) | Err(Error::Ended { .. } | Error::NoSuchJob(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn tick(&mut self) -> Result<(), Error> {
        let is_down = self.service.is_down();
        if std::mem::replace(&mut self.service_was_down, is_down) && !is_down {
            self.retry_payments().await?;
        }
        if self.photo.is_due() {
            self.send_photo().await?;
        }
        if self.decision.is_due() {
            self.decide().await?;
        }
        if self.approval.is_due() {
            self.approve().await?;
        }
        if self.act.is_due() {
            let act = ACTS[self.acts % ACTS.len()];
            self.acts += 1;
            self.act(act).await?;
        }
        Ok(())
    }

    /// Reads the newest jobs of a kind in a state.
    async fn jobs(&self, kind: &str, state: State, narrowed: Filter) -> Result<Vec<Summary>, Error> {
        let filter = Filter { kind: Some(kind.into()), state: Some(state), limit: READ, ..narrowed };
        Ok(self.engine.inspect().jobs(&filter).await?.jobs)
    }

    /// One of the complaints that wait in a stage.
    async fn complaint_in(&self, stage: &str) -> Result<Option<Summary>, Error> {
        let stage = Filter { stage: Some(stage.into()), ..Filter::default() };
        Ok(fastrand::choice(self.jobs(Complaint::KIND, State::Waiting, stage).await?))
    }

    async fn send_photo(&self) -> Result<(), Error> {
        if let Some(job) = self.complaint_in("AwaitPhoto").await? {
            self.engine.signal(job.id, "photo", Photo { file: format!("photos/{}.jpg", job.id) }).await?;
        }
        Ok(())
    }

    async fn decide(&self) -> Result<(), Error> {
        if let Some(job) = self.complaint_in("AwaitDecision").await? {
            let decision = Decision { refund: fastrand::u8(0..3) > 0, by: "ruth".into() };
            self.engine.signal(job.id, "decision", decision).await?;
        }
        Ok(())
    }

    /// Approves one of the large orders. Every third one is forgotten, and waits for days.
    async fn approve(&self) -> Result<(), Error> {
        let now = self.engine.inspect().clock().await?;
        for job in self.jobs(WholesaleOrder::KIND, State::Waiting, Filter::default()).await? {
            let number = job.key.as_deref().and_then(WholesaleOrder::number);
            let waits =
                |number: u32| WholesaleOrder::of(number).needs_approval() && !number.is_multiple_of(3);
            if !number.is_some_and(waits) || now - CONSIDERED < job.submitted_at {
                continue;
            }
            let approval = Approval { granted: fastrand::u8(0..12) > 0, by: "ines".into() };
            // One that was approved before may still be waiting, for its day of delivery.
            if self.engine.signal(job.id, "approved", approval).dedup("ines").await? == Delivery::Delivered {
                break;
            }
        }
        Ok(())
    }

    /// Retries the payments that the card service has made fail.
    async fn retry_payments(&self) -> Result<(), Error> {
        let failed = Filter {
            kind: Some(ChargeCard::KIND.into()),
            error_class: Some(SERVICE_DOWN.into()),
            state: Some(State::Failed),
            ..Filter::default()
        };
        let control = self.engine.control("tomas").note("the card service answers again");
        let retries = control.bulk(failed, JobAction::Retry).per_second(RETRIES_PER_SECOND);
        let _ = retries.run(|_| true).await?;
        Ok(())
    }

    async fn act(&mut self, act: Act) -> Result<(), Error> {
        let by = |who: &str, note: &str| self.engine.control(who).note(note);
        // An answer that nothing was to be done is as good: the job has moved on.
        let _ = match act {
            Act::CancelOrder => {
                let orders = self.jobs(WholesaleOrder::KIND, State::Waiting, Filter::default()).await?;
                let Some(order) = fastrand::choice(orders) else { return Ok(()) };
                by("ruth", "the café rang: it is closed that week").cancel(order.id).await?
            }
            Act::PrioritizePayment => {
                let payments = self.jobs(ChargeCard::KIND, State::Scheduled, Filter::default()).await?;
                let Some(payment) = fastrand::choice(payments) else { return Ok(()) };
                by("ruth", "the customer is waiting in the shop").priority(payment.id, -40).await?
            }
            Act::PauseComplaint => {
                let Some(complaint) = self.complaint_in("AwaitDecision").await? else { return Ok(()) };
                self.paused = Some(complaint.id);
                by("ines", "the customer is abroad until Monday").pause(complaint.id).await?
            }
            Act::RetryOrder => {
                let orders = self.jobs(WholesaleOrder::KIND, State::Failed, Filter::default()).await?;
                let Some(order) = fastrand::choice(orders) else { return Ok(()) };
                by("tomas", "the oven is repaired").retry(order.id).await?
            }
            Act::ResumeComplaint => {
                let Some(complaint) = self.paused.take() else { return Ok(()) };
                by("ines", "the customer is back").resume(complaint).await?
            }
        };
        Ok(())
    }
}

/// What people did in the morning, before the first worker started.
pub(super) async fn begin(engine: &Engine) -> anyhow::Result<()> {
    let by = |who: &str, note: &str| -> Control { engine.control(who).note(note) };
    let newest = |kind: &str, state| {
        let filter = Filter { kind: Some(kind.into()), state: Some(state), limit: 2, ..Filter::default() };
        async move { anyhow::Ok(engine.inspect().jobs(&filter).await?.jobs) }
    };
    for order in newest(WholesaleOrder::KIND, State::Ready).await? {
        by("ruth", "ordered twice by mistake").cancel(order.id).await?.accepted()?;
    }
    for backup in newest(BackUpRecipes::KIND, State::Scheduled).await?.iter().take(1) {
        by("tomas", "not before the new disk is there").pause(backup.id).await?.accepted()?;
    }
    Ok(())
}
