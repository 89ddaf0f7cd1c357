//! Running a program: `{"command": "tar", "args": ["czf", "a.tgz", "a"], "cwd": "/data"}`.

use std::{collections::BTreeMap, io, path::PathBuf, process::Stdio, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Command,
};
use windlass::{Failure, Task, TaskCx};

/// How much is kept of the end of each output: enough for a message, little enough for a row.
const TAIL: usize = 16 << 10;
/// How long to read on after the program has ended: a child it left behind may hold the pipes for ever.
const LINGER: Duration = Duration::from_secs(1);

/// A program to run. It belongs to a process group of its own, so an interrupt at the terminal does not reach it, and
/// the whole group is killed when the attempt ends before the program does.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exec {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    /// Added to the worker's environment.
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    cwd: Option<PathBuf>,
    /// Text for its standard input.
    #[serde(default)]
    stdin: Option<String>,
}

/// How it ended.
#[derive(Serialize, Deserialize)]
pub(super) struct Ended {
    /// Its exit code; none if it was ended by a signal.
    code: Option<i32>,
    /// The end of what it wrote.
    stdout: String,
    stderr: String,
}

impl Task for Exec {
    const KIND: &'static str = "exec";
    type Output = Ended;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<Ended, Failure> {
        let mut command = Command::new(&self.command);
        // The trace is the job's, not the worker's.
        match cx.traceparent() {
            Some(trace) => command.env("TRACEPARENT", trace),
            None => command.env_remove("TRACEPARENT"),
        };
        command.args(&self.args).envs(&self.env).kill_on_drop(true).process_group(0);
        command.env("WINDLASS_JOB", cx.id().to_string()).env("WINDLASS_FENCE", cx.fence().to_string());
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.not_started(&error))?;
        let group = Group::of(child.id());
        let feed = feed(child.stdin.take(), self.stdin.unwrap_or_default());
        let (mut stdout, mut stderr) = (Tail::default(), Tail::default());
        let status = {
            let pipes = (child.stdout.take(), child.stderr.take());
            let read = async {
                tokio::join!(stdout.read(pipes.0), stderr.read(pipes.1), feed);
            };
            tokio::pin!(read);
            let waited = child.wait();
            tokio::pin!(waited);
            tokio::select! {
                status = &mut waited => {
                    let _ = tokio::time::timeout(LINGER, read).await;
                    status
                }
                () = &mut read => waited.await,
            }
        };
        let status = status.map_err(|error| Failure::retry(error).class("io"))?;
        group.ended();
        let ended = Ended { code: status.code(), stdout: stdout.text(), stderr: stderr.text() };
        if status.success() {
            return Ok(ended);
        }
        let last = ended.stderr.lines().rev().find(|line| !line.trim().is_empty());
        let why = last.map(|line| format!(": {}", line.trim())).unwrap_or_default();
        Err(Failure::retry(format!("{} ended with {status}{why}", self.command))
            .class("exit")
            .with_detail(&ended))
    }
}

impl Exec {
    /// A program that is not there will not be there next time either; everything else may pass.
    fn not_started(&self, error: &io::Error) -> Failure {
        let command = &self.command;
        match (error.kind(), &self.cwd) {
            (io::ErrorKind::NotFound, Some(cwd)) if !cwd.is_dir() => {
                Failure::stop(format!("the folder {} is not there; correct `cwd`", cwd.display()))
                    .class("not_found")
            }
            (io::ErrorKind::NotFound, _) => Failure::stop(format!(
                "the program {command:?} was not found on this worker; install it or name its path"
            ))
            .class("not_found"),
            (io::ErrorKind::PermissionDenied, _) => {
                Failure::stop(format!("the program {command:?} may not be run by this worker ({error})"))
                    .class("denied")
            }
            _ => Failure::retry(format!("the program {command:?} did not start: {error}")).class("io"),
        }
    }
}

async fn feed(stdin: Option<tokio::process::ChildStdin>, text: String) {
    if let Some(mut stdin) = stdin {
        // A program need not read its input.
        let _ = stdin.write_all(text.as_bytes()).await;
    }
}

/// The program's process group, killed when this is dropped before the program has ended.
struct Group(Option<rustix::process::Pid>);

impl Group {
    fn of(pid: Option<u32>) -> Group {
        Group(pid.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw))
    }

    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// The end of a stream.
#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    cut: bool,
}

impl Tail {
    async fn read(&mut self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut chunk = vec![0; 8 << 10];
        while let Ok(read @ 1..) = from.read(&mut chunk).await {
            self.bytes.extend_from_slice(&chunk[..read]);
            if self.bytes.len() > TAIL {
                self.bytes.drain(..self.bytes.len() - TAIL);
                self.cut = true;
            }
        }
    }

    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes).replace('\0', "\u{fffd}");
        if self.cut { format!("…{text}") } else { text }
    }
}
