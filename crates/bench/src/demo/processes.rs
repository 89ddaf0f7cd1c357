//! The demo's worker processes: started, killed, frozen, woken.

use std::{
    ffi::OsString,
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

/// What a worker process reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WorkerEvent {
    /// This many tasks have ended, and the store has confirmed it.
    Acked(u64),
    /// This many of its writes were fenced.
    Fenced(u64),
    /// It holds the task that is to be frozen, and is inside no call to the store.
    Holding,
    /// It has exited.
    Gone,
}

/// What a worker process is started with.
pub(super) struct Launch {
    /// The arguments of this program, whose first one names a command.
    pub(super) args: Vec<OsString>,
    /// The file for what it logs, which is emptied first.
    pub(super) log: PathBuf,
}

/// Worker processes.
pub(super) struct Processes {
    members: Vec<Member>,
    /// The number of the worker started last.
    pub(super) last: u32,
    sender: mpsc::Sender<(u32, WorkerEvent)>,
}

struct Member {
    serial: u32,
    pid: Pid,
    child: Child,
}

impl Processes {
    pub(super) fn new() -> (Processes, mpsc::Receiver<(u32, WorkerEvent)>) {
        let (sender, events) = mpsc::channel(1_000);
        (Processes { members: Vec::new(), last: 0, sender }, events)
    }

    /// Starts one more worker, as `launch` says for its number. Returns the number.
    ///
    /// Call it from the main task only: a worker ends with the thread that started it.
    pub(super) fn start(&mut self, launch: impl FnOnce(u32) -> Launch) -> anyhow::Result<u32> {
        let serial = self.last + 1;
        let Launch { args, log } = launch(serial);
        let log = File::create(log).context("a worker's log cannot be made")?;
        let mut command =
            Command::new(std::env::current_exe().context("this program's own path is not known")?);
        command.args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        // Ctrl-C in a terminal is for the demo alone, which then stops its workers.
        command.process_group(0);
        let mut child = command.spawn().context("a worker process cannot be started")?;
        let pid = child
            .id()
            .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
            .context("a worker has no pid")?;
        let out = child.stdout.take().context("a worker's output cannot be read")?;
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(out).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(event) = parse_event(&line)
                    && sender.send((serial, event)).await.is_err()
                {
                    return;
                }
            }
            let _ = sender.send((serial, WorkerEvent::Gone)).await;
        });
        self.last = serial;
        self.members.push(Member { serial, pid, child });
        Ok(serial)
    }

    /// The numbers of the live workers.
    pub(super) fn serials(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.serial).collect()
    }

    fn find(&mut self, serial: u32) -> anyhow::Result<&mut Member> {
        let member = self.members.iter_mut().find(|member| member.serial == serial);
        member.with_context(|| format!("there is no worker {serial}"))
    }

    /// Kills a worker as `kill -9` does.
    pub(super) async fn kill(&mut self, serial: u32) -> anyhow::Result<()> {
        let member = self.find(serial)?;
        member.child.kill().await.with_context(|| format!("worker {serial} cannot be killed"))?;
        self.members.retain(|member| member.serial != serial);
        Ok(())
    }

    /// Stops a worker's process with SIGSTOP, and returns when it is stopped.
    pub(super) async fn freeze(&mut self, serial: u32) -> anyhow::Result<()> {
        let pid = self.find(serial)?.pid;
        kill_process(pid, Signal::STOP).with_context(|| format!("worker {serial} cannot be stopped"))?;
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        for _ in 0..2_000 {
            if waitid(WaitId::Pid(pid), options)?.is_some() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        bail!("worker {serial} was sent SIGSTOP and does not stop")
    }

    /// Continues a frozen worker.
    pub(super) fn wake(&mut self, serial: u32) -> anyhow::Result<()> {
        let pid = self.find(serial)?.pid;
        kill_process(pid, Signal::CONT).with_context(|| format!("worker {serial} cannot be woken"))
    }

    /// Kills all workers, and returns when they have ended.
    pub(super) async fn kill_all(&mut self) {
        for mut member in self.members.drain(..) {
            // One that cannot be killed has ended.
            let _ = member.child.kill().await;
        }
    }

    /// Stops all workers and waits for them. Returns those that failed.
    pub(super) async fn stop(&mut self) -> Vec<(u32, Option<ExitStatus>)> {
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

fn parse_event(line: &str) -> Option<WorkerEvent> {
    match line.split_once(' ') {
        Some(("acked", count)) => count.parse().ok().map(WorkerEvent::Acked),
        Some(("fenced", count)) => count.parse().ok().map(WorkerEvent::Fenced),
        None if line == "holding" => Some(WorkerEvent::Holding),
        _ => None,
    }
}
