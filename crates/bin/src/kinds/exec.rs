//! `exec`, a task that runs a program: `{"command": "tar", "args": ["czf", "a.tgz", "a"], "cwd": "/data"}`.

use std::{collections::BTreeMap, io, path::PathBuf, process::Stdio, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Command,
};
use windlass::{Failure, Task, TaskCx};

/// How many bytes of the end of each output are kept: enough for a message, little enough for a row.
const TAIL: usize = 16 << 10;
/// How long to keep reading after the program has ended: a child process of it may hold the pipes open for ever.
const LINGER: Duration = Duration::from_secs(1);

/// Variables with secrets of the worker, which are not passed to programs: the address of the store may have a password.
const SECRETS: [&str; 2] = ["WINDLASS_STORE", "WINDLASS_TOKEN"];

/// A program to run. It has a process group of its own: an interrupt at the terminal does not reach it, and all its processes
/// are killed if the attempt ends before the program does.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exec {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    /// Added to the worker's environment, of which programs do not get the secrets.
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    cwd: Option<PathBuf>,
    /// Text for its standard input.
    #[serde(default)]
    stdin: Option<String>,
}

/// The result of the program.
#[derive(Serialize, Deserialize)]
pub(super) struct ProgramOutput {
    /// Its exit code; `None` if a signal ended it.
    code: Option<i32>,
    /// The end of its standard output.
    stdout: String,
    stderr: String,
}

impl Task for Exec {
    const KIND: &'static str = "exec";
    type Output = ProgramOutput;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<ProgramOutput, Failure> {
        let mut command = Command::new(&self.command);
        // The trace of the job, not that of the worker.
        match cx.traceparent() {
            Some(trace) => command.env("TRACEPARENT", trace),
            None => command.env_remove("TRACEPARENT"),
        };
        for name in SECRETS {
            command.env_remove(name);
        }
        command.args(&self.args).envs(&self.env).kill_on_drop(true).process_group(0);
        command.env("WINDLASS_JOB", cx.id().to_string()).env("WINDLASS_FENCE", cx.fence().to_string());
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.not_started(&error))?;
        let group = ProcessGroup::new(child.id());
        let write_stdin = write_stdin(child.stdin.take(), self.stdin.unwrap_or_default());
        let (mut stdout, mut stderr) = (Tail::default(), Tail::default());
        let status = {
            let pipes = (child.stdout.take(), child.stderr.take());
            let read = async {
                tokio::join!(stdout.read(pipes.0), stderr.read(pipes.1), write_stdin);
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
        group.disarm();
        let output = ProgramOutput { code: status.code(), stdout: stdout.text(), stderr: stderr.text() };
        if status.success() {
            return Ok(output);
        }
        let last = output.stderr.lines().rev().find(|line| !line.trim().is_empty());
        let why = last.map(|line| format!(": {}", line.trim())).unwrap_or_default();
        Err(Failure::retry(format!("{} ended with {status}{why}", self.command))
            .class("exit")
            .with_detail(&output))
    }
}

impl Exec {
    /// A program that does not exist will not exist at the next attempt either; other errors may pass.
    fn not_started(&self, error: &io::Error) -> Failure {
        let command = &self.command;
        match (error.kind(), &self.cwd) {
            (io::ErrorKind::NotFound, Some(cwd)) if !cwd.is_dir() => {
                Failure::stop(format!("the folder {} does not exist; correct `cwd`", cwd.display()))
                    .class("not_found")
            }
            (io::ErrorKind::NotFound, _) => Failure::stop(format!(
                "the program {command:?} was not found on this worker; install it or name its path"
            ))
            .class("not_found"),
            (io::ErrorKind::PermissionDenied, _) => {
                Failure::stop(format!("this worker may not run the program {command:?} ({error})"))
                    .class("denied")
            }
            _ => Failure::retry(format!("the program {command:?} cannot be started: {error}")).class("io"),
        }
    }
}

async fn write_stdin(stdin: Option<tokio::process::ChildStdin>, text: String) {
    if let Some(mut stdin) = stdin {
        // A program may end without reading its input.
        let _ = stdin.write_all(text.as_bytes()).await;
    }
}

/// The program's process group. Dropping it kills the group unless it was disarmed.
struct ProcessGroup(Option<rustix::process::Pid>);

impl ProcessGroup {
    fn new(pid: Option<u32>) -> ProcessGroup {
        ProcessGroup(pid.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw))
    }

    /// Call it when the program has ended.
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// The last bytes of a stream.
#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    truncated: bool,
}

impl Tail {
    async fn read(&mut self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut chunk = vec![0; 8 << 10];
        while let Ok(read @ 1..) = from.read(&mut chunk).await {
            self.bytes.extend_from_slice(&chunk[..read]);
            if self.bytes.len() > TAIL {
                self.bytes.drain(..self.bytes.len() - TAIL);
                self.truncated = true;
            }
        }
    }

    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes).replace('\0', "\u{fffd}");
        if self.truncated { format!("…{text}") } else { text }
    }
}
