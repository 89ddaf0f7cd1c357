//! One run of a server: its start, readiness and end.
//!
//! A server counts as ready only when its own lock file says so with its own process number, and a real
//! connection works after that. So another server that took the same port a moment earlier is never taken
//! for this one.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::binaries::Binaries;
use crate::error::Error;
use crate::processes::{Mark, signal};
use crate::watcher::Watcher;

/// How often a server is looked at while it is waited for.
const POLL: Duration = Duration::from_millis(10);
/// How much of the log's end an error shows.
const LOG_LINES: usize = 30;
const LOG_BYTES: u64 = 16 * 1024;

/// Where a cluster is and with what and as whom its programs are run.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) binaries: Binaries,
    pub(crate) account: Account,
    pub(crate) folder: PathBuf,
    pub(crate) mark: Mark,
}

/// Why a server did not come up, as far as that decides what to do next.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Its port is taken.
    PortTaken(Error),
    /// Remains of a former server of the same data are still alive.
    StillInUse(Error),
    /// Anything else; another try would not help.
    Other(Error),
}

impl Failure {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::PortTaken(error) | Self::StillInUse(error) | Self::Other(error) => error,
        }
    }
}

impl Place {
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    /// A command for one of PostgreSQL's programs.
    pub(crate) fn command(&self, name: &str) -> Command {
        self.account.command(self.binaries.program(name), &self.folder)
    }

    /// Makes the files of an empty cluster. They need no sync: no crash of the machine is to be survived
    /// by a folder that is thrown away.
    pub(crate) fn initialize(&self, watcher: &mut Watcher) -> Result<(), Error> {
        let mut command = self.command("initdb");
        command.arg("-D").arg(self.data());
        command.args(["-U", "windlass", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(Error::run(command.get_program()))?;
        watcher.watch(child.id());
        let output = child.wait_with_output().map_err(Error::run(command.get_program()))?;
        watcher.forget();
        check("initdb", &output)
    }

    /// Starts a server and waits until it accepts connections. On failure no process is left.
    pub(crate) fn launch(
        &self,
        port: u16,
        patience: Duration,
        watcher: &mut Watcher,
    ) -> Result<Child, Failure> {
        let (mut command, log_start) = self.server_command(port).map_err(Failure::Other)?;
        let program = PathBuf::from(command.get_program());
        let mut child = command.spawn().map_err(|source| Failure::Other(Error::Run { program, source }))?;
        watcher.watch(child.id());
        let outcome = self.wait_ready(&mut child, port, log_start, patience);
        match outcome {
            Ok(()) => Ok(child),
            Err(failure) => {
                let _ = crash(&mut child, self);
                watcher.forget();
                Err(failure)
            }
        }
    }

    /// The command that runs the server, and where in the log its lines will begin.
    fn server_command(&self, port: u16) -> Result<(Command, u64), Error> {
        let path = self.log();
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(Error::files("open", &path))?;
        let start = log.metadata().map_err(Error::files("look at", &path))?.len();
        let second = log.try_clone().map_err(Error::files("open", &path))?;
        let mut command = self.command("postgres");
        // The mark of the server's processes depends on this order: the data folder is not the last word.
        command.arg("-D").arg(self.data()).arg("-p").arg(port.to_string()).stdout(log).stderr(second);
        Ok((command, start))
    }

    fn wait_ready(
        &self,
        child: &mut Child,
        port: u16,
        log_start: u64,
        patience: Duration,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + patience;
        loop {
            let ended = child.try_wait().map_err(|source| self.lost(child.id(), source))?;
            if let Some(status) = ended {
                let said = read_from(&self.log(), log_start);
                let error =
                    Error::NotReady { port, reason: format!("it ended ({status})"), log: self.log_end() };
                return Err(classify(&said)(error));
            }
            if self.says_ready(child.id()) && self.accepts(port).map_err(Failure::Other)? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let reason = format!("it accepted no connection within {} s", patience.as_secs());
                return Err(Failure::Other(Error::NotReady { port, reason, log: self.log_end() }));
            }
            sleep(POLL);
        }
    }

    fn lost(&self, pid: u32, source: std::io::Error) -> Failure {
        Failure::Other(Error::Files { action: "wait for process", path: pid.to_string().into(), source })
    }

    /// Whether the lock file is this very process's and says that it is ready.
    fn says_ready(&self, pid: u32) -> bool {
        let lock = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = lock.lines().map(str::trim);
        lines.next() == Some(pid.to_string().as_str()) && lines.nth(6) == Some("ready")
    }

    /// Whether a connection works now.
    fn accepts(&self, port: u16) -> Result<bool, Error> {
        let mut command = self.command("pg_isready");
        command.args(["-q", "-h", "127.0.0.1", "-t", "5", "-U", "windlass", "-d", "postgres", "-p"]);
        command.arg(port.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command.status().map_err(Error::run(command.get_program()))?.success())
    }

    /// The last lines of the server's log.
    pub(crate) fn log_end(&self) -> String {
        let length = fs::metadata(self.log()).map(|meta| meta.len()).unwrap_or(0);
        let text = read_from(&self.log(), length.saturating_sub(LOG_BYTES));
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

/// Tells a server to end by a signal and waits; whether it has ended.
pub(crate) fn end(child: &mut Child, name: &str, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    // A child that was not waited for keeps its process number, so this cannot hit another process.
    if matches!(child.try_wait(), Ok(None)) {
        signal(name, &[child.id()]);
    }
    loop {
        match child.try_wait() {
            Ok(Some(_)) | Err(_) => return true,
            Ok(None) if Instant::now() >= deadline => return false,
            Ok(None) => sleep(POLL / 2),
        }
    }
}

/// Kills all processes of a server at once and waits until none lives.
pub(crate) fn crash(child: &mut Child, place: &Place) -> Result<(), Error> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let deadline = Instant::now() + PATIENCE;
    let mut victims = place.mark.living();
    victims.retain(|pid| *pid != child.id());
    if matches!(child.try_wait(), Ok(None)) {
        victims.insert(0, child.id());
    }
    loop {
        signal("KILL", &victims);
        let reaped = !matches!(child.try_wait(), Ok(None));
        victims = place.mark.living();
        if victims.is_empty() && reaped {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let pid = victims.first().copied().unwrap_or(child.id());
            return Err(Error::NotEnded { pid, seconds: PATIENCE.as_secs(), log: place.log_end() });
        }
        sleep(Duration::from_millis(2));
    }
}

/// Success, or an error with what the program wrote.
pub(crate) fn check(program: &str, output: &Output) -> Result<(), Error> {
    if output.status.success() {
        return Ok(());
    }
    let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    let status = output.status.to_string();
    Err(Error::Failed { program: program.to_owned(), status, output: text.trim().to_owned() })
}

/// What kind of failure the lines of a log tell of.
fn classify(log: &str) -> fn(Error) -> Failure {
    if log.contains("Address already in use") {
        Failure::PortTaken
    } else if log.contains("pre-existing shared memory block") || log.contains("already exists") {
        Failure::StillInUse
    } else {
        Failure::Other
    }
}

/// The text of a file from some byte on; empty if it cannot be read.
fn read_from(path: &Path, start: u64) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(path) {
        let _ = file.seek(SeekFrom::Start(start));
        let _ = file.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
