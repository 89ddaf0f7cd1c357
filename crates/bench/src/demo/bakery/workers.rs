//! The company's worker processes: three, of which one is killed every half minute and replaced.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::sync::mpsc;

use super::{
    super::processes::{Launch, Processes, WorkerEvent},
    CardService, Every, worker,
};
use crate::out;

/// The hosts that the workers pretend to run on.
const HOSTS: [&str; 3] = ["bakery-a", "bakery-b", "office"];
/// How often one is killed.
const KILL_EVERY: Duration = Duration::from_secs(30);
/// How long until one that ended by itself is replaced.
const RESTART_AFTER: Duration = Duration::from_secs(3);
/// After how many workers that ended by themselves, with none killed in between, the demo fails.
const MOST_ENDED: u32 = 10;

pub(super) struct Workers {
    url: String,
    dir: PathBuf,
    service: CardService,
    processes: Processes,
    events: mpsc::Receiver<(u32, WorkerEvent)>,
    /// The number of the worker of each host.
    serials: [u32; HOSTS.len()],
    /// The host whose worker is killed next.
    victim: usize,
    kill: Every,
    ended: u32,
}

impl Workers {
    pub(super) fn new(url: &str, dir: &Path, service: CardService) -> Workers {
        let (processes, events) = Processes::new();
        let kill = Every::new(KILL_EVERY, KILL_EVERY);
        let (url, dir) = (url.to_owned(), dir.to_owned());
        Workers { url, dir, service, processes, events, serials: [0; HOSTS.len()], victim: 0, kill, ended: 0 }
    }

    /// Starts one on each host.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        (0..HOSTS.len()).try_for_each(|host| self.start_on(host))
    }

    fn start_on(&mut self, host: usize) -> anyhow::Result<()> {
        let args = worker::Args::command_line(&self.url, HOSTS[host], self.service);
        // The log of the one before is overwritten, so that logs do not grow.
        let log = self.log(host);
        self.serials[host] = self.processes.start(|_| Launch { args, log })?;
        Ok(())
    }

    fn log(&self, host: usize) -> PathBuf {
        self.dir.join(format!("company-{}.log", HOSTS[host]))
    }

    pub(super) async fn run(&mut self) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(Duration::from_millis(500));
        loop {
            tokio::select! {
                Some((serial, event)) = self.events.recv() => {
                    if let Some(host) = self.host_of(serial).filter(|_| event == WorkerEvent::Gone) {
                        self.replace_ended(host).await?;
                    }
                }
                _ = ticks.tick() => {
                    if self.kill.is_due() {
                        self.kill().await?;
                    }
                }
            }
        }
    }

    fn host_of(&self, serial: u32) -> Option<usize> {
        self.serials.iter().position(|known| *known == serial)
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        let host = self.victim;
        self.victim = (host + 1) % HOSTS.len();
        self.ended = 0;
        self.processes.kill(self.serials[host]).await?;
        self.start_on(host)
    }

    /// Replaces a worker that has ended without having been killed by the demo.
    async fn replace_ended(&mut self, host: usize) -> anyhow::Result<()> {
        let log = std::fs::read_to_string(self.log(host)).unwrap_or_default();
        let why = format!("a worker ended by itself: {}", log.lines().last().unwrap_or("its log is empty"));
        self.ended += 1;
        anyhow::ensure!(self.ended <= MOST_ENDED, "{why}");
        out::note(&why);
        // It has ended already; this forgets it.
        self.processes.kill(self.serials[host]).await?;
        tokio::time::sleep(RESTART_AFTER).await;
        self.start_on(host)
    }

    pub(super) async fn stop(&mut self) {
        self.processes.stop().await;
    }
}
