//! Eight processes that submit at the same time: for one unique name, and for one serial key.
//!
//! The processes are this test binary, started again for an ignored test. They report in files, not in the store.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use windlass::prelude::*;

const PROCESSES: usize = 8;
/// The number of names that all processes submit for, one after the other.
const NAMES: usize = 25;
/// The number of jobs that each process submits with the one serial key.
const TURNS: usize = 25;

/// The environment variables of a child.
const URL: &str = "WINDLASS_TEST_URL";
const FOLDER: &str = "WINDLASS_TEST_FOLDER";
const NUMBER: &str = "WINDLASS_TEST_NUMBER";

crate::on_both_stores!(
    processes_that_submit_one_unique_name_get_one_job,
    jobs_of_one_serial_key_run_one_at_a_time_in_all_processes,
);

/// The child processes of a test, killed when it ends.
struct Processes {
    folder: tempfile::TempDir,
    children: Vec<Child>,
}

impl Processes {
    /// Starts all of them, and lets them begin at the same time.
    fn start(test: &str, url: &str) -> Processes {
        let mut processes =
            Processes { folder: tempfile::tempdir().expect("a temporary folder"), children: Vec::new() };
        for number in 0..PROCESSES {
            let child = Command::new(std::env::current_exe().expect("the path of this test"))
                .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
                .env(URL, url)
                .env(FOLDER, processes.folder.path())
                .env(NUMBER, number.to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .expect("a child");
            processes.children.push(child);
        }
        for number in 0..PROCESSES {
            processes.wait_for(&format!("ready{number}"));
        }
        mark(processes.folder.path(), "go");
        processes
    }

    /// Waits for a file. Panics if a child fails meanwhile.
    fn wait_for(&mut self, name: &str) {
        let path = self.folder.path().join(name);
        self.until(|| path.exists());
    }

    fn until(&mut self, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            for child in &mut self.children {
                let ended = child.try_wait().expect("a child");
                assert!(ended.is_none_or(|status| status.success()), "a child failed: {ended:?}");
            }
            assert!(began.elapsed() < Duration::from_secs(120), "not within 120 s");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for all of them to succeed.
    fn wait(&mut self) {
        for mut child in self.children.drain(..) {
            let status = child.wait().expect("a child");
            assert!(status.success(), "a child failed: {status}");
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn mark(folder: &Path, name: &str) {
    File::create(folder.join(name)).expect("a file");
}

/// The URL, folder and number of this child; `None` when someone runs the ignored tests by hand.
fn child_args() -> Option<(String, PathBuf, usize)> {
    let number = std::env::var(NUMBER).ok()?.parse().ok()?;
    Some((std::env::var(URL).ok()?, std::env::var_os(FOLDER)?.into(), number))
}

/// Reports that this child is ready, and waits for the others.
async fn start_together(folder: &Path, number: usize) {
    mark(folder, &format!("ready{number}"));
    until_exists(&folder.join("go")).await;
}

async fn until_exists(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Logs its start and its end.
#[derive(Serialize, Deserialize)]
struct Turn {
    process: usize,
    number: usize,
}

impl Task for Turn {
    const KIND: &'static str = "turn";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        let (_, folder, _) = child_args().ok_or_else(|| Failure::stop("only the test runs this"))?;
        let lock = File::create(folder.join("lock")).expect("a file");
        let who = format!("{} {}", self.process, self.number);
        if lock.try_lock().is_err() {
            note(&folder, "overlap", &who);
        }
        note(&folder, "start", &who);
        tokio::time::sleep(Duration::from_micros(300)).await;
        note(&folder, "end", &who);
        Ok(())
    }
}

/// Adds a line to the one log of all processes, in one write.
fn note(folder: &Path, what: &str, who: &str) {
    let mut log = OpenOptions::new().append(true).create(true).open(folder.join("log")).expect("the log");
    log.write_all(format!("{what} {who}\n").as_bytes()).expect("a line");
}

async fn processes_that_submit_one_unique_name_get_one_job(url: &str) {
    Engine::open(url).await.expect("a store");
    let mut processes = Processes::start("many_processes::child_submits_unique_names", url);
    processes.wait();
    let mut answers: HashMap<usize, Vec<(bool, String)>> = HashMap::new();
    for number in 0..PROCESSES {
        let path = processes.folder.path().join(format!("answers{number}"));
        for line in std::fs::read_to_string(path).expect("the answers of a child").lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let name = words[0].parse().expect("a number");
            answers.entry(name).or_default().push((words[1] == "true", words[2].to_owned()));
        }
    }
    assert_eq!(answers.len(), NAMES);
    for (name, answers) in &answers {
        assert_eq!(answers.len(), PROCESSES);
        let new: Vec<&String> = answers.iter().filter(|(is_new, _)| *is_new).map(|(_, id)| id).collect();
        assert_eq!(new.len(), 1, "name {name} was new for {}: {answers:?}", new.len());
        assert!(answers.iter().all(|(_, id)| id == new[0]), "name {name} has several jobs: {answers:?}");
    }
    let engine = Engine::open(url).await.expect("a store");
    let filter = windlass::store::Filter { limit: 1_000, ..Default::default() };
    assert_eq!(engine.inspect().jobs(&filter).await.expect("jobs").jobs.len(), NAMES);
}

#[tokio::test]
#[ignore = "run as a child by processes_that_submit_one_unique_name_get_one_job"]
async fn child_submits_unique_names() {
    let Some((url, folder, number)) = child_args() else { return };
    let engine = Engine::open(&url).await.expect("a store");
    start_together(&folder, number).await;
    let mut answers = String::new();
    for name in 0..NAMES {
        let turn = Turn { process: number, number: name };
        let job = engine.submit(turn).unique(format!("name{name}")).await.expect("submitted");
        answers += &format!("{name} {} {}\n", job.is_new(), job.id());
    }
    std::fs::write(folder.join(format!("answers{number}")), answers).expect("written");
}

async fn jobs_of_one_serial_key_run_one_at_a_time_in_all_processes(url: &str) {
    Engine::open(url).await.expect("a store");
    let mut processes = Processes::start("many_processes::child_runs_serial_jobs", url);
    let log = processes.folder.path().join("log");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    let all = PROCESSES * TURNS;
    processes.until(|| read().lines().filter(|line| line.starts_with("end ")).count() >= all);
    mark(processes.folder.path(), "stop");
    processes.wait();
    // After all have stopped, so that a job that ran twice is in the log.
    let text = read();
    assert!(!text.contains("overlap"), "two ran at once: {text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2 * all, "each runs once");
    let mut last: HashMap<&str, usize> = HashMap::new();
    for pair in lines.chunks(2) {
        let who = pair[0].strip_prefix("start ").expect("a start");
        assert_eq!(pair[1].strip_prefix("end "), Some(who), "two ran at once");
        let (process, number) = who.split_once(' ').expect("two numbers");
        let number: usize = number.parse().expect("a number");
        let expected = last.insert(process, number).map_or(0, |before| before + 1);
        assert_eq!(number, expected, "the order of process {process} was not kept");
    }
    assert_eq!(last.len(), PROCESSES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run as a child by jobs_of_one_serial_key_run_one_at_a_time_in_all_processes"]
async fn child_runs_serial_jobs() {
    let Some((url, folder, process)) = child_args() else { return };
    let engine = Engine::builder(&url).task::<Turn>();
    let engine = engine.queue("default", Pool::slots(4)).start().await.expect("started");
    start_together(&folder, process).await;
    for number in 0..TURNS {
        let job = engine.submit(Turn { process, number }).serial("one").await.expect("submitted");
        assert!(job.is_new());
    }
    until_exists(&folder.join("stop")).await;
    assert_eq!(engine.stop().await, 0);
}
