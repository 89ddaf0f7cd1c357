//! A cluster over its life: crash, restart, stop, several at once, settings.
//!
//! Every test starts servers of its own and needs an installed PostgreSQL, but no network.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use windlass_testpg::{Cluster, Error};

#[test]
fn what_was_committed_survives_a_kill() {
    let begin = Instant::now();
    let mut cluster = Cluster::start().unwrap();
    println!("start took {:?}", begin.elapsed());
    let (url, port, pid) = (cluster.url(), cluster.port(), cluster.pid());
    assert_eq!(url, format!("postgres://windlass@127.0.0.1:{port}/windlass"));
    assert!(cluster.data_dir().join("PG_VERSION").is_file());
    cluster.sql("windlass", "create table t (n int); insert into t values (7)").unwrap();

    let begin = Instant::now();
    cluster.kill().unwrap();
    println!("kill took {:?}", begin.elapsed());
    assert_eq!(cluster.pid(), None);
    assert!(matches!(cluster.sql("windlass", "select 1"), Err(Error::Failed { .. })));
    cluster.kill().unwrap();

    let begin = Instant::now();
    cluster.restart().unwrap();
    println!("restart took {:?}", begin.elapsed());
    assert_eq!(cluster.url(), url);
    assert_ne!(cluster.pid(), pid);
    assert_eq!(cluster.sql("windlass", "select n from t").unwrap(), "7");
    assert!(cluster.log().contains("automatic recovery"), "{}", cluster.log());
}

#[test]
fn a_kill_ends_busy_sessions_too() {
    let mut cluster = Cluster::start().unwrap();
    cluster.sql("windlass", "create table t (n int)").unwrap();
    // A session that computes, and so does not notice by itself that the postmaster has died.
    let mut psql = Command::new(cluster.bin_dir().join("psql"));
    psql.args(["-X", "-d", &cluster.url(), "-c"]);
    psql.arg("begin; insert into t values (1); select count(*) from generate_series(1, 1e12) /* busy */");
    let mut busy = psql.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let seen = "select count(*) from pg_stat_activity where state = 'active' and query like '%busy%' \
                and pid <> pg_backend_pid()";
    let deadline = Instant::now() + Duration::from_secs(30);
    while cluster.sql("windlass", seen).unwrap() != "1" {
        assert!(Instant::now() < deadline, "the busy session was never seen");
        thread::sleep(Duration::from_millis(20));
    }
    cluster.kill().unwrap();
    assert!(!busy.wait().unwrap().success());
    for _ in 0..2 {
        cluster.restart().unwrap();
        assert_eq!(cluster.sql("windlass", "select count(*) from t").unwrap(), "0");
        cluster.kill().unwrap();
    }
}

#[test]
fn a_postmaster_killed_by_others_can_be_restarted() {
    let mut cluster = Cluster::start().unwrap();
    let pid = cluster.pid().unwrap().to_string();
    assert!(Command::new("sh").args(["-c", "kill -9 $0", &pid]).status().unwrap().success());
    cluster.restart().unwrap();
    assert_eq!(cluster.sql("windlass", "select 1").unwrap(), "1");
}

#[test]
fn a_stop_is_orderly() {
    let mut cluster = Cluster::start().unwrap();
    cluster.stop().unwrap();
    assert_eq!(cluster.pid(), None);
    assert!(cluster.log().contains("database system is shut down"), "{}", cluster.log());
    cluster.restart().unwrap();
    assert!(!cluster.log().contains("automatic recovery"), "{}", cluster.log());
}

#[test]
fn a_restart_waits_for_its_port() {
    let mut cluster = Cluster::start().unwrap();
    cluster.kill().unwrap();
    let squatter = TcpListener::bind(("127.0.0.1", cluster.port())).unwrap();
    let leaves = thread::spawn(move || {
        thread::sleep(Duration::from_millis(600));
        drop(squatter);
    });
    cluster.restart().unwrap();
    leaves.join().unwrap();
    assert_eq!(cluster.sql("windlass", "select 1").unwrap(), "1");
}

#[test]
fn several_run_at_once() {
    let starts: Vec<_> = (0..3).map(|_| thread::spawn(|| Cluster::start().unwrap())).collect();
    let clusters: Vec<_> = starts.into_iter().map(|start| start.join().unwrap()).collect();
    for (n, cluster) in clusters.iter().enumerate() {
        cluster.sql("windlass", &format!("create table t as select {n} as n")).unwrap();
    }
    for (n, cluster) in clusters.iter().enumerate() {
        assert_eq!(cluster.sql("windlass", "select n from t").unwrap(), n.to_string());
    }
}

#[test]
fn settings_and_databases_are_as_asked_for() {
    let builder = Cluster::builder().setting("work_mem", "5MB").setting("windlass.note", "it's \\ here");
    let cluster = builder.preload("pg_stat_statements").start().unwrap();
    let show = |name: &str| cluster.sql("windlass", &format!("show {name}")).unwrap();
    assert_eq!(show("work_mem"), "5MB");
    assert_eq!(show("windlass.note"), "it's \\ here");
    for durable in ["fsync", "synchronous_commit", "full_page_writes"] {
        assert_eq!(show(durable), "on", "{durable}");
    }
    cluster.sql("windlass", "create extension pg_stat_statements").unwrap();

    let owner = "select pg_get_userbyid(datdba) from pg_database where datname = current_database()";
    assert_eq!(cluster.sql("windlass", owner).unwrap(), "windlass");
    let odd = "odd \"name\" = 1/2";
    let url = cluster.create_database(odd).unwrap();
    assert_eq!(url, cluster.url_for(odd));
    let mut psql = Command::new(cluster.bin_dir().join("psql"));
    let output =
        psql.args(["-X", "-A", "-t", "-d", &url, "-c", "select current_database()"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), odd);
    let error = cluster.create_database(odd).unwrap_err().to_string();
    assert!(error.contains("already exists"), "{error}");
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let error = Cluster::builder().setting("work_mem", "lots").start().unwrap_err().to_string();
    assert!(error.contains("did not start") && error.contains("work_mem"), "{error}");
    let error = Cluster::builder().setting("port", 5432).start().unwrap_err();
    assert!(matches!(error, Error::Setting { .. }), "{error}");
}
