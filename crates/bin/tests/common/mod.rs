//! Running the binary, as a person or a script would, in a folder of its own.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// A folder with a store of its own.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { dir: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    /// A command of the binary, in this folder, with none of the caller's settings.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_windlass")), args)
    }

    /// The same for another program.
    pub(crate) fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        // Lock files of workers on PostgreSQL are in the temporary folder; each test has its own.
        command.current_dir(self.dir.path()).args(args).env("TMPDIR", self.dir.path());
        for (name, _) in std::env::vars_os() {
            let ours = |name: &str| {
                name.starts_with("WINDLASS_")
                    || name.starts_with("OTEL_")
                    || ["RUST_LOG", "TRACEPARENT"].contains(&name)
            };
            if name.to_str().is_some_and(ours) {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        self.end(self.command(args))
    }

    pub(crate) fn end(&self, mut command: Command) -> Ended {
        let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().expect("run");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Ended { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
    }

    /// Runs a command that must succeed, and answers what it printed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let ended = self.run(args);
        assert_eq!(ended.code, 0, "{args:?}: {ended:?}");
        ended.out
    }

    /// Runs a command that must fail, and answers what it said.
    pub(crate) fn bad(&self, args: &[&str]) -> String {
        let ended = self.run(args);
        assert!(ended.code == 1 || ended.code == 2, "{args:?}: {ended:?}");
        assert!(!ended.err.contains("panicked"), "{ended:?}");
        ended.err
    }

    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.ok(args)).expect("JSON")
    }

    /// Starts a worker and returns when it serves.
    pub(crate) fn worker(&self, args: &[&str]) -> Worker {
        self.start(self.command(&[&["worker"], args].concat()))
    }

    pub(crate) fn start(&self, mut command: Command) -> Worker {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        assert!(line.starts_with("worker w"), "{line:?}");
        Worker { _input: child.stdin.take(), child, line }
    }

    /// How many jobs are in a state.
    pub(crate) fn count(&self, state: &str) -> u64 {
        self.json(&["jobs", "--json"])["counts"][state].as_u64().unwrap_or(0)
    }
}

/// A running worker, killed at the end of the test.
pub(crate) struct Worker {
    pub(crate) child: Child,
    /// What it said as it started.
    pub(crate) line: String,
    _input: Option<ChildStdin>,
}

impl Worker {
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid =
            i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("signalled");
    }

    /// Waits for it to end; answers its exit code and what it logged.
    pub(crate) fn ended(mut self) -> (i32, String) {
        let code = until("the worker ends", || self.child.try_wait().expect("waited")).code().unwrap_or(-1);
        let mut log = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().expect("piped"), &mut log).expect("text");
        (code, log)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Looks until something is there.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The program of an example, which a test of everything has built already.
pub(crate) fn example(package: &str, name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_windlass")).with_file_name("examples").join(name);
    if !path.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", package, "--example", name]);
        cargo.args((!cfg!(debug_assertions)).then_some("--release"));
        assert!(cargo.status().expect("cargo").success());
    }
    path
}
