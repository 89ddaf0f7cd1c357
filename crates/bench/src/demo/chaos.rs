//! What happens to the workers, and when: kills at even shares of the work, and one freeze.

use std::{
    ffi::OsString,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use tokio::sync::mpsc;
use windlass::{Engine, JobId, State};

use super::{
    plan::HELD,
    processes::{Launch, Processes, WorkerEvent},
    screen::Screen,
    stop::Stop,
    worker::{LEASE, Numbered, marker},
};

/// How many workers are killed.
const KILLS: u64 = 5;
/// How long the demo may make no progress before it fails as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the workers of the crash test are started.
pub(super) struct WorkerArgs {
    pub(super) url: String,
    pub(super) queue: String,
    pub(super) dir: PathBuf,
    pub(super) slots: usize,
    pub(super) mean: u64,
}

impl WorkerArgs {
    fn launch(&self, serial: u32) -> Launch {
        let WorkerArgs { url, queue, dir, slots, mean } = self;
        let mut args: Vec<OsString> = ["demo-worker", "--at", url, "--queue", queue].map(Into::into).into();
        args.extend(["--dir".into(), dir.into()]);
        for (name, value) in [("--serial", u64::from(serial)), ("--slots", *slots as u64), ("--mean", *mean)]
        {
            args.extend([name.into(), value.to_string().into()]);
        }
        Launch { args, log: self.log(serial) }
    }

    fn log(&self, serial: u32) -> PathBuf {
        self.dir.join(format!("worker-{serial}.log"))
    }
}

/// What happened.
#[derive(Default)]
pub(super) struct Happened {
    pub(super) killed: u64,
    /// The worker that was frozen and woken.
    pub(super) zombie: Option<u32>,
    /// The number of the worker started last.
    pub(super) last_worker: u32,
    /// Workers that failed when they were stopped.
    pub(super) unwell: Vec<String>,
}

/// How far the freeze is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freeze {
    /// The task that is to be held is not submitted yet.
    Planned,
    /// It is, and no worker holds it yet.
    Submitted,
    /// This worker is frozen.
    Frozen(u32),
    /// This worker was woken, and has not noticed yet.
    Woken(u32),
    Over,
}

pub(super) struct Chaos {
    engine: Engine,
    args: WorkerArgs,
    processes: Processes,
    events: mpsc::Receiver<(u32, WorkerEvent)>,
    screen: Screen,
    held: JobId,
    total: u64,
    freeze: Freeze,
    happened: Happened,
    acked: u64,
    started: Instant,
    moved: Instant,
    killed: Instant,
    counted_at: Instant,
}

impl Chaos {
    pub(super) fn new(engine: Engine, args: WorkerArgs, screen: Screen, ids: &[JobId]) -> Chaos {
        let (now, held, total) = (Instant::now(), ids[HELD as usize], ids.len() as u64);
        let (processes, events) = Processes::new();
        let (freeze, happened) = (Freeze::Planned, Happened::default());
        let (acked, started, moved, killed, counted_at) = (0, now, now, now, now);
        Chaos {
            engine,
            args,
            processes,
            events,
            screen,
            held,
            total,
            freeze,
            happened,
            acked,
            started,
            moved,
            killed,
            counted_at,
        }
    }

    /// Runs until every task has ended; `None` if the demo was stopped before.
    pub(super) async fn run(&mut self, workers: u32, mut stop: Stop) -> anyhow::Result<Option<Happened>> {
        for _ in 0..workers {
            self.start_worker()?;
        }
        let mut tick = tokio::time::interval(Duration::from_millis(50));
        loop {
            tokio::select! {
                Some((serial, event)) = self.events.recv() => self.handle_event(serial, event).await?,
                _ = tick.tick() => {
                    if self.tick().await? {
                        break;
                    }
                }
                () = stop.requested() => {
                    self.screen.close();
                    self.processes.kill_all().await;
                    return Ok(None);
                }
            }
        }
        self.screen.progress(self.total, self.rate());
        self.screen.event("every task has ended; stopping the workers");
        for (serial, status) in self.processes.stop().await {
            let how = status.map_or("did not stop".to_owned(), |status| format!("ended with {status}"));
            self.happened.unwell.push(format!("worker {serial} {how}: {}", self.last_words(serial)));
        }
        self.screen.event("reading all jobs back");
        self.screen.close();
        self.happened.last_worker = self.processes.last;
        Ok(Some(std::mem::take(&mut self.happened)))
    }

    fn start_worker(&mut self) -> anyhow::Result<u32> {
        self.processes.start(|serial| self.args.launch(serial))
    }

    async fn handle_event(&mut self, serial: u32, event: WorkerEvent) -> anyhow::Result<()> {
        match event {
            WorkerEvent::Acked(count) => {
                self.acked += count;
                self.moved = Instant::now();
            }
            WorkerEvent::Holding if self.freeze == Freeze::Submitted => self.freeze(serial).await?,
            WorkerEvent::Fenced(_) if self.freeze == Freeze::Woken(serial) => {
                self.screen
                    .event("the zombie tried to write the results it had: fenced, nothing was written");
                self.freeze = Freeze::Over;
            }
            WorkerEvent::Gone if self.processes.serials().contains(&serial) => {
                bail!("worker {serial} ended by itself: {}", self.last_words(serial));
            }
            WorkerEvent::Holding | WorkerEvent::Fenced(_) | WorkerEvent::Gone => {}
        }
        Ok(())
    }

    /// The worker is inside no call to the store: it can be stopped without holding up the others.
    async fn freeze(&mut self, serial: u32) -> anyhow::Result<()> {
        self.processes.freeze(serial).await?;
        // The next run of the held task finds this file and continues.
        std::fs::write(marker(&self.args.dir), "").context("the marker cannot be written")?;
        self.freeze = Freeze::Frozen(serial);
        let lease = LEASE.as_secs();
        self.screen.event(&format!(
            "worker {serial} frozen (SIGSTOP) in the middle of its jobs; its lease is {lease} s"
        ));
        Ok(())
    }

    /// One look at everything; whether all is over.
    async fn tick(&mut self) -> anyhow::Result<bool> {
        self.screen.progress(self.acked, self.rate());
        if self.moved.elapsed() > PATIENCE {
            bail!("no task has ended for {} s", PATIENCE.as_secs());
        }
        let due = self.total * (self.happened.killed + 1) / (KILLS + 2);
        if self.happened.killed < KILLS
            && self.acked >= due
            && self.killed.elapsed() > Duration::from_millis(400)
        {
            self.kill().await?;
        }
        match self.freeze {
            Freeze::Planned if self.acked >= self.total / 10 => {
                let held = self.engine.submit(Numbered { number: HELD }).id(self.held);
                held.queue(&self.args.queue).priority(-100).await?;
                self.freeze = Freeze::Submitted;
            }
            Freeze::Frozen(serial) if self.taken_over().await? => {
                self.processes.wake(serial)?;
                self.happened.zombie = Some(serial);
                self.freeze = Freeze::Woken(serial);
                self.screen.event(&format!(
                    "the others have taken over its jobs; worker {serial} woken (SIGCONT), a zombie"
                ));
            }
            _ => {}
        }
        Ok(self.freeze == Freeze::Over && self.all_ended().await?)
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        let spared = |serial: &u32| [Freeze::Frozen(*serial), Freeze::Woken(*serial)].contains(&self.freeze);
        let victims: Vec<u32> =
            self.processes.serials().into_iter().filter(|serial| !spared(serial)).collect();
        let Some(victim) = fastrand::choice(victims) else { return Ok(()) };
        self.processes.kill(victim).await?;
        let replacement = self.start_worker()?;
        self.happened.killed += 1;
        self.killed = Instant::now();
        self.screen.event(&format!("worker {victim} killed (SIGKILL); worker {replacement} takes its place"));
        Ok(())
    }

    /// Whether the frozen worker's held task has been done by another.
    async fn taken_over(&self) -> anyhow::Result<bool> {
        Ok(self.engine.store().job_ends(&[self.held]).await?.first().is_some_and(Option::is_some))
    }

    /// Whether no task is left, by the store's word. It is asked seldom while much is left to do.
    async fn all_ended(&mut self) -> anyhow::Result<bool> {
        let pause = if self.acked * 20 < self.total * 19 { 1_000 } else { 200 };
        if self.counted_at.elapsed() < Duration::from_millis(pause) {
            return Ok(false);
        }
        let state_counts = self.engine.inspect().state_counts().await?;
        self.counted_at = Instant::now();
        let own = state_counts.iter().filter(|count| count.queue == self.args.queue);
        let open = |state: State| !state.is_final();
        Ok(own.filter(|count| open(count.state)).map(|count| count.jobs).sum::<u64>() == 0)
    }

    fn rate(&self) -> f64 {
        self.acked as f64 / self.started.elapsed().as_secs_f64().max(0.001)
    }

    /// The end of a worker's log.
    fn last_words(&self, serial: u32) -> String {
        let log = std::fs::read_to_string(self.args.log(serial)).unwrap_or_default();
        log.lines().last().map_or("its log is empty".to_owned(), str::to_owned)
    }
}
