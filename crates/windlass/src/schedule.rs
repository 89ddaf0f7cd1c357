//! Making schedules.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
};

use windlass_model::{
    Calendar, KindVersion, NewJob, Payload, Schedule,
    calendar::{CatchUp, Overlap},
    job::digest,
};

use crate::{Engine, Error, Kind};

/// A schedule that is being described; `.await` creates it, or changes the one of that name. Call it at every start of your
/// program: a schedule that is the same already stays as it is.
///
/// ```no_run
/// # use windlass::prelude::*;
/// # #[derive(Serialize, Deserialize)]
/// # struct Greet { name: String }
/// # impl Task for Greet {
/// #     const KIND: &'static str = "greet";
/// #     type Output = String;
/// #     type Error = Failure;
/// #     async fn run(self, _cx: &TaskCx) -> Result<String, Failure> { Ok(self.name) }
/// # }
/// # async fn example(engine: Engine) -> Result<(), Box<dyn std::error::Error>> {
/// let mornings = Calendar::cron("0 8 * * mon-fri", "Europe/Berlin")?;
/// engine.schedule("good_morning", mornings, Greet { name: "everybody".into() }).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a schedule does nothing until it is awaited"]
pub struct Scheduling<'a> {
    engine: &'a Engine,
    schedule: Result<Schedule, Error>,
    /// Whether the code of the kind must be able to decode the input.
    is_checked: bool,
    author: String,
    note: Option<String>,
}

impl<'a> Scheduling<'a> {
    pub(crate) fn new<J: Kind<M>, M>(
        engine: &'a Engine,
        name: &str,
        calendar: Calendar,
        job: &J,
    ) -> Scheduling<'a> {
        let kind = KindVersion { kind: J::KIND.into(), version: J::VERSION };
        let schedule = serde_json::to_vec(job)
            .map_err(|source| Error::Encode { kind: J::KIND.into(), source })
            .map(|input| {
                let mut schedule = Schedule::new(name, calendar, kind, Payload::json(input));
                schedule.queue = J::QUEUE.into();
                schedule.stage = J::stage(&schedule.input.bytes);
                schedule
            });
        Scheduling { engine, schedule, is_checked: false, author: "the program".into(), note: None }
    }

    pub(crate) fn json(
        engine: &'a Engine,
        name: &str,
        calendar: Calendar,
        kind: KindVersion,
        input: &serde_json::Value,
    ) -> Scheduling<'a> {
        let queue = engine.default_queue(&kind.kind);
        let mut schedule = Schedule::new(name, calendar, kind, Payload::json(input.to_string().into_bytes()));
        schedule.queue = queue.into();
        schedule.stage = engine.stage(&schedule.kind.kind, &schedule.input.bytes);
        Scheduling {
            engine,
            schedule: Ok(schedule),
            is_checked: true,
            author: "the program".into(),
            note: None,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Schedule)) -> Scheduling<'a> {
        if let Ok(schedule) = &mut self.schedule {
            change(schedule);
        }
        self
    }

    /// Accepts an input that the code of this program cannot decode, because other workers can.
    pub fn unchecked(mut self) -> Scheduling<'a> {
        self.is_checked = false;
        self
    }

    /// What follows if the job of the tick before has not ended.
    pub fn overlap(self, overlap: Overlap) -> Scheduling<'a> {
        self.with(|schedule| schedule.overlap = overlap)
    }

    /// What follows for ticks that were missed while no worker ran.
    pub fn catch_up(self, catch_up: CatchUp) -> Scheduling<'a> {
        self.with(|schedule| schedule.catch_up = catch_up)
    }

    /// Sets the queue.
    pub fn queue(self, queue: impl Into<String>) -> Scheduling<'a> {
        self.with(|schedule| schedule.queue = queue.into())
    }

    /// Sets the priority.
    pub fn priority(self, priority: i16) -> Scheduling<'a> {
        self.with(|schedule| schedule.priority = priority)
    }

    /// Adds a word that people can search for; call it again for more.
    pub fn tag(self, tag: impl Into<String>) -> Scheduling<'a> {
        self.with(|schedule| schedule.tags.push(tag.into()))
    }

    /// Sets policies: retries, time limit, serial key, rate limit.
    pub fn settings(self, change: impl FnOnce(&mut windlass_model::Settings)) -> Scheduling<'a> {
        self.with(|schedule| change(&mut schedule.settings))
    }

    /// Who makes it, for the audit log; by default the program.
    pub fn by(mut self, author: impl Into<String>) -> Scheduling<'a> {
        self.author = author.into();
        self
    }

    /// Why, for the audit log.
    pub fn note(mut self, note: impl Into<String>) -> Scheduling<'a> {
        self.note = Some(note.into());
        self
    }
}

impl<'a> IntoFuture for Scheduling<'a> {
    /// Whether anything was changed.
    type Output = Result<bool, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut schedule = self.schedule?;
            if self.is_checked {
                self.engine.check_input(&schedule.kind, &schedule.input.bytes)?;
            }
            let plain =
                NewJob::new(self.engine.new_id(), &schedule.kind.kind, &schedule.queue, schedule.input);
            debug_assert_eq!(plain.digest, digest(&schedule.kind.kind, &plain.input));
            schedule.input = self.engine.codecs().encoded(plain)?.input;
            let control = self.engine.control(self.author);
            let control = match self.note {
                Some(note) => control.note(note),
                None => control,
            };
            control.set_schedule(schedule).await
        })
    }
}
