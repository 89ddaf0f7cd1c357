//! Nothing is left of a cluster: not after a drop, and not after its owner was killed.
//!
//! The owner to be killed is this test program itself, run a second time to do nothing but hold a cluster.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use windlass_testpg::Cluster;

/// Set for the second run of this program.
const HOLD: &str = "WINDLASS_CLUSTER_TEST_HOLD";

/// The folder of a cluster, whose name is in the command lines of its server and watcher.
fn folder_of(cluster: &Cluster) -> PathBuf {
    cluster.data_dir().parent().unwrap().to_path_buf()
}

/// How many processes have a cluster's name in their command line.
fn processes_of(folder: &Path) -> usize {
    let name = folder.file_name().unwrap().to_str().unwrap();
    let output = Command::new("ps").args(["-A", "-ww", "-o", "args="]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.contains(name)).count()
}

fn assert_nothing_left(folder: &Path, patience: Duration) {
    let deadline = Instant::now() + patience;
    while folder.exists() || processes_of(folder) > 0 {
        let left = processes_of(folder);
        assert!(
            Instant::now() < deadline,
            "{} exists: {}, processes: {left}",
            folder.display(),
            folder.exists()
        );
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_drop_leaves_no_process_and_no_folder() {
    let cluster = Cluster::start().unwrap();
    let folder = folder_of(&cluster);
    assert!(folder.is_dir());
    assert!(processes_of(&folder) > 2, "postmaster, its children and the watcher");
    let begin = Instant::now();
    drop(cluster);
    println!("drop took {:?}", begin.elapsed());
    assert_nothing_left(&folder, Duration::ZERO);
}

#[test]
fn a_drop_after_a_kill_or_stop_leaves_nothing() {
    let mut killed = Cluster::start().unwrap();
    let mut stopped = Cluster::start().unwrap();
    let folders = [folder_of(&killed), folder_of(&stopped)];
    let lock = fs::read_to_string(killed.data_dir().join("postmaster.pid")).unwrap();
    let segment = lock.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned();
    killed.kill().unwrap();
    stopped.stop().unwrap();
    assert!(folders.iter().all(|folder| folder.is_dir()));
    drop((killed, stopped));
    for folder in folders {
        assert_nothing_left(&folder, Duration::ZERO);
    }
    if let Ok(segments) = fs::read_to_string("/proc/sysvipc/shm") {
        let mut numbers = segments.lines().filter_map(|line| line.split_whitespace().nth(1));
        assert!(numbers.all(|number| number != segment), "{segments}");
    }
}

#[test]
fn a_failed_start_leaves_nothing() {
    let parent = tempfile::Builder::new().tempdir().unwrap();
    fs::set_permissions(parent.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let result = Cluster::builder().parent(parent.path()).setting("work_mem", "lots").start();
    assert!(result.is_err());
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn a_killed_owner_leaves_no_server() {
    let mut owner = Command::new(std::env::current_exe().unwrap());
    owner.args(["--exact", "hold_a_cluster", "--ignored", "--nocapture"]).env(HOLD, "1");
    let mut owner =
        owner.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let folder = lines.by_ref().map_while(Result::ok).find_map(|line| {
        // The test harness may have written something before it on the same line.
        line.split_once("HELD ").map(|(_, path)| PathBuf::from(path))
    });
    let folder = folder.expect("the owner starts a cluster");
    assert!(folder.is_dir() && processes_of(&folder) > 2);

    owner.kill().unwrap();
    owner.wait().unwrap();
    // Its output must end now: neither the server nor the watcher may hold it.
    let begin = Instant::now();
    assert_eq!(lines.map_while(Result::ok).count(), 0);
    let mut rest = String::new();
    owner.stderr.take().unwrap().read_to_string(&mut rest).unwrap();
    assert!(begin.elapsed() < Duration::from_millis(500), "something held the owner's output");
    assert_nothing_left(&folder, Duration::from_secs(20));
    println!("all gone {:?} after the owner", begin.elapsed());
}

/// Not a test: the owner in the test above.
#[test]
#[ignore = "only run by a_killed_owner_leaves_no_server"]
fn hold_a_cluster() {
    if std::env::var_os(HOLD).is_none() {
        return;
    }
    let cluster = Cluster::start().unwrap();
    println!("HELD {}", folder_of(&cluster).display());
    // Until killed, or until the test that started this is gone and has closed the other end.
    let _ = std::io::stdin().read(&mut [0]);
}
