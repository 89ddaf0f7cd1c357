//! Eight processes that submit at once: one unique name, and one serial key.
//!
//! The processes are this test binary, started again for an ignored test. What they did is read from files that they
//! write, not from the store.

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
/// How many names are fought for, one after the other.
const NAMES: usize = 25;
/// How many jobs each process submits under the one serial key.
const TURNS: usize = 25;

/// How a child is told what to do.
const URL: &str = "WINDLASS_CROWD_URL";
const FOLDER: &str = "WINDLASS_CROWD_FOLDER";
const NUMBER: &str = "WINDLASS_CROWD_NUMBER";

crate::on_both_stores!(one_name_has_one_job, one_key_runs_one_at_a_time);

/// The children of a test, ended with it.
struct Crowd {
    folder: tempfile::TempDir,
    children: Vec<Child>,
}

impl Crowd {
    /// Starts all of them, and lets them go together.
    fn start(test: &str, url: &str) -> Crowd {
        let mut crowd =
            Crowd { folder: tempfile::tempdir().expect("a temporary folder"), children: Vec::new() };
        for number in 0..PROCESSES {
            let child = Command::new(std::env::current_exe().expect("the path of this test"))
                .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
                .env(URL, url)
                .env(FOLDER, crowd.folder.path())
                .env(NUMBER, number.to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .expect("a child");
            crowd.children.push(child);
        }
        for number in 0..PROCESSES {
            crowd.wait_for(&format!("ready{number}"));
        }
        mark(crowd.folder.path(), "go");
        crowd
    }

    /// Waits for a file; no child may end badly meanwhile.
    fn wait_for(&mut self, name: &str) {
        let path = self.folder.path().join(name);
        self.until(|| path.exists());
    }

    fn until(&mut self, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            for child in &mut self.children {
                let ended = child.try_wait().expect("a child");
                assert!(ended.is_none_or(|status| status.success()), "a child ended badly: {ended:?}");
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "waited in vain");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for all of them to end well.
    fn passed(&mut self) {
        for mut child in self.children.drain(..) {
            let status = child.wait().expect("a child");
            assert!(status.success(), "a child ended badly: {status}");
        }
    }
}

impl Drop for Crowd {
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

/// What a child was told; `None` when someone runs the ignored tests by hand.
fn told() -> Option<(String, PathBuf, usize)> {
    let number = std::env::var(NUMBER).ok()?.parse().ok()?;
    Some((std::env::var(URL).ok()?, std::env::var_os(FOLDER)?.into(), number))
}

/// A child's side of the start: says that it is there, and waits for the others.
async fn together(folder: &Path, number: usize) {
    mark(folder, &format!("ready{number}"));
    until_there(&folder.join("go")).await;
}

async fn until_there(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Takes turns under one serial key, and notes when.
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
        let (_, folder, _) = told().ok_or_else(|| Failure::stop("only the test runs this"))?;
        let alone = File::create(folder.join("alone")).expect("a file");
        let who = format!("{} {}", self.process, self.number);
        if alone.try_lock().is_err() {
            note(&folder, "beside", &who);
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

async fn one_name_has_one_job(url: &str) {
    Engine::open(url).await.expect("a store");
    let mut crowd = Crowd::start("crowd::child_wants_names", url);
    crowd.passed();
    let mut answers: HashMap<usize, Vec<(bool, String)>> = HashMap::new();
    for number in 0..PROCESSES {
        let path = crowd.folder.path().join(format!("said{number}"));
        for line in std::fs::read_to_string(path).expect("what a child said").lines() {
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
    assert_eq!(engine.inspect().jobs(&filter).await.expect("jobs").len(), NAMES);
}

#[tokio::test]
#[ignore = "run as a child by one_name_has_one_job"]
async fn child_wants_names() {
    let Some((url, folder, number)) = told() else { return };
    let engine = Engine::open(&url).await.expect("a store");
    together(&folder, number).await;
    let mut said = String::new();
    for name in 0..NAMES {
        let turn = Turn { process: number, number: name };
        let job = engine.submit(turn).unique(format!("name{name}")).await.expect("submitted");
        said += &format!("{name} {} {}\n", job.is_new(), job.id());
    }
    std::fs::write(folder.join(format!("said{number}")), said).expect("written");
}

async fn one_key_runs_one_at_a_time(url: &str) {
    Engine::open(url).await.expect("a store");
    let mut crowd = Crowd::start("crowd::child_takes_turns", url);
    let log = crowd.folder.path().join("log");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    let all = PROCESSES * TURNS;
    crowd.until(|| read().lines().filter(|line| line.starts_with("end ")).count() >= all);
    mark(crowd.folder.path(), "stop");
    crowd.passed();
    // After all have stopped: what ran once more would be there, too.
    let text = read();
    assert!(!text.contains("beside"), "two ran at once: {text}");
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
#[ignore = "run as a child by one_key_runs_one_at_a_time"]
async fn child_takes_turns() {
    let Some((url, folder, process)) = told() else { return };
    let engine = Engine::open(&url).await.expect("a store").task::<Turn>();
    let engine = engine.queue("default", Pool::slots(4)).start().await.expect("started");
    together(&folder, process).await;
    for number in 0..TURNS {
        let job = engine.submit(Turn { process, number }).serial("one").await.expect("submitted");
        assert!(job.is_new());
    }
    until_there(&folder.join("stop")).await;
    assert_eq!(engine.stop().await, 0);
}
