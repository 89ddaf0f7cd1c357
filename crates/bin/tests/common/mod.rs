//! Runs the binary in a folder of its own, as a person or a script would.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use windlass_testpg::Cluster;

/// An id that no job has.
pub(crate) const UNKNOWN_JOB: &str = "0199f0c2-6f7a-7000-8000-000000000000";

/// Command lines that must fail, and what each error must contain.
pub(crate) type Refusals<'a> = [(&'a [&'a str], &'a [&'a str])];

/// A folder with a store of its own.
pub(crate) struct Sandbox {
    pub(crate) dir: tempfile::TempDir,
    /// The address of the store.
    pub(crate) url: String,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Sandbox {
    /// On a SQLite file.
    pub(crate) fn new() -> Sandbox {
        let dir = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}", dir.path().join("windlass.db").display());
        Sandbox { dir, url }
    }

    /// On a schema of a PostgreSQL server.
    pub(crate) fn on_postgres(cluster: &Cluster) -> Sandbox {
        let sandbox = Sandbox { url: format!("{}?schema=jobs", cluster.url()), ..Sandbox::new() };
        sandbox.write("windlass.toml", &format!("store = '{}'\n", sandbox.url));
        sandbox
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    /// Writes a file that only its owner may read.
    pub(crate) fn write_secret(&self, name: &str, text: &str) {
        self.write(name, text);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(self.path(name), mode).expect("changed");
    }

    /// A command of the binary, in this folder, without the caller's settings.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_windlass")), args)
    }

    /// A command of another program.
    pub(crate) fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        // Lock files of workers on PostgreSQL are in the temporary folder; each test has its own.
        command.current_dir(self.dir.path()).args(args).env("TMPDIR", self.dir.path());
        for (name, _) in std::env::vars_os() {
            let is_setting = |name: &str| {
                name.starts_with("WINDLASS_")
                    || name.starts_with("OTEL_")
                    || ["RUST_LOG", "TRACEPARENT"].contains(&name)
            };
            if name.to_str().is_some_and(is_setting) {
                command.env_remove(name);
            }
        }
        // Workers of tests run programs, unless a test says otherwise.
        command.env("WINDLASS_EXEC", "1");
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        self.finish(self.command(args))
    }

    pub(crate) fn finish(&self, mut command: Command) -> Finished {
        let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().expect("run");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Finished { code: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Runs a command that must succeed. Returns its standard output.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let finished = self.run(args);
        assert_eq!(finished.code, 0, "{args:?}: {finished:?}");
        finished.stdout
    }

    /// Runs a command that must fail. Returns its standard error.
    pub(crate) fn fails(&self, args: &[&str]) -> String {
        let finished = self.run(args);
        assert!(finished.code == 1 || finished.code == 2, "{args:?}: {finished:?}");
        assert!(!finished.stderr.contains("panicked"), "{finished:?}");
        finished.stderr
    }

    /// Runs commands that must fail, and checks each error.
    pub(crate) fn refuses(&self, cases: &Refusals) {
        for (args, parts) in cases {
            let error = self.fails(args);
            for part in *parts {
                assert!(error.contains(part), "{args:?} printed {error:?}, which lacks {part:?}");
            }
        }
    }

    /// Runs a command that must succeed and print JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(args)).expect("JSON")
    }

    /// Submits a job. Returns its id.
    pub(crate) fn submit(&self, args: &[&str]) -> String {
        let printed = self.ok(&[&["submit"], args].concat());
        printed.split_whitespace().next().expect("an id").to_owned()
    }

    /// A job as JSON.
    pub(crate) fn show(&self, job: &str) -> Value {
        self.json(&["show", job, "--json"])
    }

    /// The state of a job.
    pub(crate) fn state(&self, job: &str) -> String {
        self.show(job)["state"].as_str().expect("a state").to_owned()
    }

    /// Waits until a job is in a state. Returns the job as JSON.
    pub(crate) fn until_state(&self, job: &str, state: &str) -> Value {
        until(&format!("{job} is {state}"), || Some(self.show(job)).filter(|job| job["state"] == state))
    }

    /// How many jobs are in a state.
    pub(crate) fn count(&self, state: &str) -> u64 {
        self.json(&["jobs", "--json"])["counts"][state].as_u64().unwrap_or(0)
    }

    /// Starts a worker. Returns when it serves.
    pub(crate) fn worker(&self, args: &[&str]) -> Worker {
        self.start_worker(self.command(&[&["worker"], args].concat()))
    }

    pub(crate) fn start_worker(&self, command: Command) -> Worker {
        let worker = self.spawn_worker(command);
        assert!(worker.greeting.starts_with("worker w"), "{:?}", worker.greeting);
        worker
    }

    /// Starts a worker that one of its jobs may kill before it says that it serves. Returns when it has written a line, or
    /// has ended.
    pub(crate) fn spawn_worker(&self, mut command: Command) -> Worker {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut greeting = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut greeting).expect("a line");
        Worker { _input: child.stdin.take(), child, greeting }
    }
}

/// A running worker, killed at the end of the test.
pub(crate) struct Worker {
    pub(crate) child: Child,
    /// The line that it printed when it started.
    pub(crate) greeting: String,
    _input: Option<ChildStdin>,
}

impl Worker {
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid =
            i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("signalled");
    }

    /// Kills it, and waits until it is dead.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("dead");
    }

    /// Waits until it has ended. Returns its exit code and its log.
    pub(crate) fn wait(mut self) -> (i32, String) {
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

/// Polls until `check` returns something.
pub(crate) fn until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

/// Runs every command between backticks in a hint with --help, to see that it exists.
pub(crate) fn assert_commands_exist(sandbox: &Sandbox, hint: &str) {
    for command in hint.split('`').skip(1).step_by(2) {
        let args: Vec<&str> = command.strip_prefix("windlass ").expect(command).split(' ').collect();
        sandbox.ok(&[&args[..], &["--help"]].concat());
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
