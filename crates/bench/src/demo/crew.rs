//! The demo's worker processes: started, killed, frozen, woken.

use std::{
    fs::File,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    sync::mpsc,
};

/// What a worker says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Said {
    /// So many tasks have ended for good, and the store has said so.
    Acked(u64),
    /// So many of its writes came too late.
    Fenced(u64),
    /// It holds the task that is to be frozen, and is inside no call to the store.
    Holding,
    /// Nothing more: it is gone.
    Gone,
}

/// How workers are started.
pub(super) struct Orders {
    pub(super) url: String,
    pub(super) queue: String,
    pub(super) dir: PathBuf,
    pub(super) slots: usize,
    pub(super) mean: u64,
}

/// All workers.
pub(super) struct Crew {
    orders: Orders,
    members: Vec<Member>,
    /// The number of the worker started last.
    pub(super) last: u32,
    say: mpsc::Sender<(u32, Said)>,
}

struct Member {
    serial: u32,
    pid: Pid,
    child: Child,
}

impl Crew {
    pub(super) fn new(orders: Orders) -> (Crew, mpsc::Receiver<(u32, Said)>) {
        let (say, said) = mpsc::channel(1_000);
        (Crew { orders, members: Vec::new(), last: 0, say }, said)
    }

    /// Starts one more worker; answers its number.
    ///
    /// Call it from the main task only: a worker ends with the thread that started it.
    pub(super) fn start(&mut self) -> anyhow::Result<u32> {
        let Orders { url, queue, dir, slots, mean } = &self.orders;
        let serial = self.last + 1;
        let log = File::create(dir.join(format!("worker-{serial}.log")))
            .context("a worker's log cannot be made")?;
        let mut command =
            Command::new(std::env::current_exe().context("this program's own path is not known")?);
        command.arg("demo-worker").args(["--at", url, "--queue", queue]).arg("--dir").arg(dir);
        for (name, value) in [("--serial", u64::from(serial)), ("--slots", *slots as u64), ("--mean", *mean)]
        {
            command.arg(name).arg(value.to_string());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn().context("a worker process cannot be started")?;
        let pid = child
            .id()
            .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
            .context("a worker has no pid")?;
        let out = child.stdout.take().context("a worker's output cannot be read")?;
        let say = self.say.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(out).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(said) = heard(&line)
                    && say.send((serial, said)).await.is_err()
                {
                    return;
                }
            }
            let _ = say.send((serial, Said::Gone)).await;
        });
        self.last = serial;
        self.members.push(Member { serial, pid, child });
        Ok(serial)
    }

    /// The numbers of the workers there are.
    pub(super) fn serials(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.serial).collect()
    }

    fn find(&mut self, serial: u32) -> anyhow::Result<&mut Member> {
        let member = self.members.iter_mut().find(|member| member.serial == serial);
        member.with_context(|| format!("worker {serial} is not there"))
    }

    /// Kills a worker as `kill -9` does.
    pub(super) async fn kill(&mut self, serial: u32) -> anyhow::Result<()> {
        let member = self.find(serial)?;
        member.child.kill().await.with_context(|| format!("worker {serial} cannot be killed"))?;
        self.members.retain(|member| member.serial != serial);
        Ok(())
    }

    /// Stops a worker's process where it stands, and returns when it stands still.
    pub(super) async fn freeze(&mut self, serial: u32) -> anyhow::Result<()> {
        let pid = self.find(serial)?.pid;
        kill_process(pid, Signal::STOP).with_context(|| format!("worker {serial} cannot be stopped"))?;
        let asked = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        for _ in 0..2_000 {
            if waitid(WaitId::Pid(pid), asked)?.is_some() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        bail!("worker {serial} was sent SIGSTOP and does not stop")
    }

    /// Lets a frozen worker go on.
    pub(super) fn wake(&mut self, serial: u32) -> anyhow::Result<()> {
        let pid = self.find(serial)?.pid;
        kill_process(pid, Signal::CONT).with_context(|| format!("worker {serial} cannot be woken"))
    }

    /// Tells all workers to finish and waits for them; answers those that did not end well.
    pub(super) async fn dismiss(&mut self) -> Vec<(u32, Option<ExitStatus>)> {
        let mut bad = Vec::new();
        for member in &mut self.members {
            drop(member.child.stdin.take());
        }
        for mut member in self.members.drain(..) {
            let ended = tokio::time::timeout(Duration::from_secs(15), member.child.wait()).await;
            match ended {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => bad.push((member.serial, Some(status))),
                _ => bad.push((member.serial, None)),
            }
        }
        bad
    }
}

fn heard(line: &str) -> Option<Said> {
    match line.split_once(' ') {
        Some(("acked", count)) => count.parse().ok().map(Said::Acked),
        Some(("fenced", count)) => count.parse().ok().map(Said::Fenced),
        None if line == "holding" => Some(Said::Holding),
        _ => None,
    }
}
