//! The command line as people see it: help, answers, errors, settings.

mod common;

use common::{Sandbox, assert_contains};

#[test]
fn help_names_every_command_and_says_where_to_start() {
    let help = Sandbox::new().ok(&["--help"]);
    let commands = [
        "worker",
        "serve",
        "ui",
        "submit",
        "jobs",
        "show",
        "why",
        "branches",
        "signal",
        "diagram",
        "cancel",
        "retry",
        "redrive",
        "fork",
        "check",
        "pause",
        "resume",
        "priority",
        "queues",
        "throughput",
        "signal-waits",
        "limits",
        "serial",
        "schedules",
        "alerts",
        "tokens",
        "users",
        "audit",
        "prune",
        "migrate",
        "doctor",
        "completions",
        "demo",
    ];
    for command in commands.into_iter().chain(["bench"]) {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command}\n{help}");
    }
    assert!(help.contains("windlass demo") && help.contains("windlass.toml"), "{help}");
    assert!(!help.contains("demo-worker"), "{help}");
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("[env: WINDLASS_STORE] [default: sqlite://windlass.db]"), "{words}");
    for command in commands {
        let short = Sandbox::new().ok(&[command, "-h"]);
        assert!(short.contains("Usage: windlass ") && short.contains("--config"), "{short}");
        assert!(short.lines().all(|line| line.chars().count() <= 100), "{short}");
    }
}

#[test]
fn a_job_is_submitted_listed_and_shown() {
    let sandbox = Sandbox::new();
    let id =
        sandbox.ok(&["submit", "sleep", r#"{"ms": 1}"#, "--key", "one", "--tag", "red", "--priority", "-5"]);
    let id = id.trim();
    assert_eq!(id.len(), 36, "{id:?}");
    let again = sandbox.ok(&["submit", "sleep", r#"{"ms": 1}"#, "--key", "one"]);
    assert_eq!(again, format!("{id} existing\n"));
    let other = sandbox.ok(&["submit", "sleep", r#"{"ms": 2}"#, "--key", "one"]);
    assert_eq!(other, format!("{id} existing, with another input\n"));
    let later = sandbox.ok(&["submit", "noop", "--delay", "10m", "--queue", "slow"]);

    let list = sandbox.ok(&["jobs"]);
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines[0], "1 scheduled · 1 ready");
    assert_eq!(
        lines[2],
        "ID                                    STATE      KIND   QUEUE    KEY  SUBMITTED  NOTE"
    );
    assert!(lines[3].starts_with(&format!("{}  scheduled  noop   slow", later.trim())), "{list}");
    assert!(lines[4].starts_with(&format!("{id}  ready      sleep  default  one")), "{list}");
    assert_eq!(sandbox.ok(&["jobs", "--tag", "blue"]), "no job matches\n");
    for (filter, counts) in [
        (&["--queue", "slow"][..], "queue slow: 1 scheduled\n"),
        (&["--state", "ready"], "1 ready\n"),
        (&["--tag", "red"], "tag red: 1 ready\n"),
        (&["--key", "one", "--top"], "key one, without a parent: 1 ready\n"),
        (&["--version", "1", "--limit", "1"], "version 1: 1 scheduled · 1 ready\n"),
    ] {
        let text = sandbox.ok(&[&["jobs"], filter].concat());
        assert!(text.starts_with(counts), "{filter:?}: {text}");
    }

    let page = sandbox.ok(&["show", id]);
    assert_contains(
        &page,
        &[
            "state      ready",
            "kind       sleep, version 1",
            "priority -5",
            "key        one",
            "tags       red",
            "\"ms\": 1",
        ],
    );
    let answer = sandbox.json(&["show", id, "--json"]);
    assert_eq!((&answer["state"], &answer["input"]["ms"]), (&"ready".into(), &1.into()));
    assert_eq!(answer["history"], serde_json::json!([]));
}

#[test]
fn pages_lead_to_the_next_one() {
    let sandbox = Sandbox::new();
    let ids = sandbox.ok(&["submit", "noop", "--count", "5"]);
    assert_eq!(ids.lines().count(), 5);
    let first = sandbox.ok(&["jobs", "--limit", "2", "--kind", "noop"]);
    let next = first.lines().last().expect("a hint").strip_prefix("older jobs: windlass ").expect(&first);
    assert!(next.starts_with("jobs --kind noop --limit 2 --before "), "{next}");
    let args: Vec<&str> = next.split(' ').collect();
    assert_eq!(sandbox.ok(&args).lines().filter(|line| line.contains("ready  noop")).count(), 2);
    let answer = sandbox.json(&["jobs", "--limit", "4", "--json"]);
    assert_eq!(answer["jobs"].as_array().map(Vec::len), Some(4));
    let last = sandbox.json(&["jobs", "--json", "--before", answer["next_before"].as_str().expect("more")]);
    assert_eq!(
        (last["jobs"].as_array().map(Vec::len), &last["next_before"]),
        (Some(1), &serde_json::Value::Null)
    );
}

#[test]
fn an_error_says_what_is_wrong_and_what_to_do() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["submit", "noop"]);
    let cases: &[(&[&str], &[&str])] = &[
        (&["submit", "resize", "{}"], &["approval, exec, noop, reminder, sleep", "--any-kind"]),
        (&["submit", "noop", "{"], &["not JSON", "in quotes"]),
        (
            &["submit", "sleep", r#"{"ms": "a"}"#],
            &["\"sleep\" job does not decode", "invalid type: string \"a\", expected u64", "--any-kind"],
        ),
        (&["submit", "sleep"], &["\"sleep\" job does not decode", "invalid type: null"]),
        (&["submit", "approval", r#"{"Aks": {}}"#], &["unknown variant `Aks`", "its stages are Ask, "]),
        (&["submit", "approval", "7"], &["is not a stage"]),
        (&["submit", "reminder", "{}"], &["missing field `what`"]),
        (&["schedules", "set", "s", "@daily", "--kind", "sleep"], &["\"sleep\" job does not decode"]),
        (&["submit", "noop", "--delay", "soon"], &["15s, 500ms"]),
        (&["submit", "noop", "--at", "tomorrow"], &["2026-11-15T08:00:00Z"]),
        (&["submit", "noop", "--deadline", "never"], &["duration from now"]),
        (&["submit", "noop", "--priority", "500"], &["from -100"]),
        (&["submit", "noop", "--options", "{"], &["not JSON"]),
        (&["submit", "noop", "--queue", "a b"], &["contains ' '"]),
        (&["submit", "noop", "--kind-version", "7"], &["version 7", "--any-kind"]),
        (&["submit", "noop", "--key", "k", "--count", "2"], &["--key", "--count"]),
        (&["jobs", "--state", "asleep"], &["scheduled, ready, running, waiting"]),
        (&["jobs", "--limt", "3"], &["--limit"]),
        (&["jobs", "--limit", "0"], &["1..=10000"]),
        (&["show", "abc"], &["not a job id", "0199f0c2"]),
        (&["show", "0199f0c2-6f7a-7000-8000-000000000000"], &["there is no job", "windlass jobs"]),
        (&["worker", "--queue", "mail=many"], &["mail=16"]),
        (&["worker", "--lease", "2s", "--renew-every", "5s"], &["does not fit", "at most 1s"]),
        (&["migrate", "--to", "99"], &["no schema version 99"]),
        (&["migrate", "--to", "0"], &["--yes"]),
        (&["jobs", "--store", "sqlite://elsewhere.db"], &["there is no store", "windlass submit"]),
        (&["jobs", "--store", "mysql://x"], &["sqlite://PATH, postgres://"]),
        (&["jobs", "--config", "nowhere.toml"], &["nowhere.toml cannot be read"]),
        (&["jobs", "--log", "a=b=c"], &["not a log level"]),
        (&["demo", "--workers", "1"], &["2..=64"]),
    ];
    sandbox.refuses(cases);
    assert!(!sandbox.path("elsewhere.db").exists(), "reading creates no store");
}

#[test]
fn an_unknown_kind_is_submitted_with_any_kind() {
    let sandbox = Sandbox::new();
    let answer = sandbox.json(&["submit", "resize", "[1]", "--any-kind", "--kind-version", "3", "--json"]);
    assert_eq!(answer["new"], true);
    assert!(sandbox.ok(&["jobs"]).contains("resize v3"));
}

#[test]
fn flags_override_the_environment_and_that_overrides_the_file() {
    let sandbox = Sandbox::new();
    sandbox
        .write("windlass.toml", "store = 'sqlite://file.db'\nname = 'from-file'\n[queues.mail]\nslots = 3\n");
    let submit = |args: &[&str], env: Option<&str>| {
        let mut command = sandbox.command(&[&["submit", "noop"], args].concat());
        env.map(|store| command.env("WINDLASS_STORE", store));
        assert_eq!(sandbox.finish(command).code, 0);
    };
    submit(&[], None);
    assert!(sandbox.path("file.db").exists());
    submit(&[], Some("sqlite://env.db"));
    assert!(sandbox.path("env.db").exists());
    submit(&["--store", "sqlite://flag.db"], Some("sqlite://unused.db"));
    assert!(sandbox.path("flag.db").exists() && !sandbox.path("unused.db").exists());

    let line = sandbox.worker(&["--log", "warn"]).greeting.clone();
    assert!(
        line.contains(
            "(from-file) serves sqlite://file.db · queues mail=3 · kinds approval, exec, noop, reminder, sleep"
        ),
        "{line}"
    );
    let line =
        sandbox.worker(&["--name", "flagged", "--queue", "mail", "--queue", "default=5"]).greeting.clone();
    assert!(line.contains("(flagged)") && line.contains("queues mail=3, default=5"), "{line}");
}

#[test]
fn a_misspelt_setting_is_an_error_and_a_misspelt_variable_a_warning() {
    let sandbox = Sandbox::new();
    sandbox.write("windlass.toml", "[queues.default]\nslot = 3\n");
    let text = sandbox.fails(&["jobs"]);
    assert!(
        text.contains("windlass.toml") && text.contains("`queues.default.slot`") && text.contains("`slots`"),
        "{text}"
    );
    sandbox.write("other.toml", "");
    let mut command = sandbox.command(&["submit", "noop", "--config", "other.toml"]);
    command.env("WINDLASS_LEAS", "3s");
    let ended = sandbox.finish(command);
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (0, "warning: WINDLASS_LEAS is not read; did you mean WINDLASS_LEASE?\n")
    );
}

#[test]
fn a_closed_pipe_is_no_error() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["submit", "noop", "--count", "3000"]);
    let mut command = sandbox.command(&["jobs", "--limit", "3000"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("started");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ended");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn the_schema_is_created_shown_and_removed() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["migrate", "--status"]).code, 1);
    assert!(!sandbox.path("windlass.db").exists(), "reading creates no store");
    let newest = windlass::store::SchemaState::CURRENT.version;
    let made = sandbox.ok(&["migrate"]);
    assert!(made.contains(&format!("migrated from no schema to version {newest}")), "{made}");
    assert!(sandbox.ok(&["migrate"]).contains(&format!("version {newest}; this binary's version")));
    assert_eq!(sandbox.json(&["migrate", "--status", "--json"])["version"], newest);
    assert!(sandbox.ok(&["migrate", "--to", "0", "--yes"]).contains("to no schema"));
    assert!(sandbox.fails(&["jobs"]).contains("windlass migrate"));
}

#[test]
fn every_command_takes_an_id_or_kind_and_key() {
    let sandbox = Sandbox::new();
    let job = sandbox.submit(&["noop", "--key", "a/7", "--delay", "1h"]);
    let other = sandbox.submit(&["sleep", r#"{"ms": 1}"#, "--key", "both", "--delay", "1h"]);
    let twin = sandbox.submit(&["noop", "--key", "both", "--delay", "1h"]);
    for name in [job.as_str(), "noop/a/7", "a/7"] {
        let child = sandbox.submit(&["noop", "--parent", name, "--delay", "1h"]);
        assert_eq!(sandbox.show(&child)["parent"], job.as_str(), "{name}");
        assert_eq!(sandbox.show(name)["id"], job.as_str(), "{name}");
        assert_eq!(sandbox.json(&["why", name, "--json"])["job"], job.as_str(), "{name}");
        assert!(sandbox.ok(&["jobs", "--parent", name]).contains(&child), "{name}");
        assert_eq!(sandbox.json(&["signal", name, "go", "--json"])["job"], job.as_str(), "{name}");
        for action in ["pause", "resume", "cancel", "retry"] {
            assert!(sandbox.ok(&[action, name]).starts_with(&job), "{action} {name}");
        }
        assert!(sandbox.ok(&["priority", "3", name]).starts_with(&job), "{name}");
        assert!(sandbox.ok(&["audit", "--subject", name]).contains(&job), "{name}");
        // They know which job is meant, and that it is no workflow or has no branches.
        for command in [
            &["fork", name, "--from-beginning"][..],
            &["diagram", name],
            &["branches", name],
            &["redrive", name],
        ] {
            let ended = sandbox.run(command);
            let said = ended.stdout + &ended.stderr;
            assert!(
                !said.contains("is not a job id") && !said.contains("several jobs"),
                "{command:?}: {said}"
            );
        }
    }
    assert_eq!(sandbox.show("sleep/both")["id"], other.as_str());
    assert_eq!(sandbox.show("noop/both")["id"], twin.as_str());
    let both = [
        format!("noop/both ({twin})"),
        format!("sleep/both ({other})"),
        "write kind/key or the id".to_owned(),
    ];
    let both: Vec<&str> = both.iter().map(String::as_str).collect();
    sandbox.refuses(&[
        (&["show", "both"], &both),
        (&["signal", "both", "go"], &both),
        (&["submit", "noop", "--parent", "both"], &both),
        (&["show", "sleep/a/7"], &["\"sleep/a/7\" is not a job id", "or as kind/key", "`windlass jobs`"]),
    ]);
}

#[test]
fn top_jobs_are_listed_and_cancelled_without_their_children() {
    let sandbox = Sandbox::new();
    let parent = sandbox.submit(&["noop", "--delay", "1h"]);
    let child = sandbox.submit(&["noop", "--delay", "1h", "--parent", &parent]);
    let list = sandbox.ok(&["jobs", "--top"]);
    assert!(list.contains(&parent) && !list.contains(&child), "{list}");
    let preview = sandbox.json(&["cancel", "--top", "--dry-run", "--json"]);
    assert_eq!(
        (&preview["matching"], &preview["sample"][0]["id"]),
        (&1.into(), &parent.as_str().into()),
        "{preview}"
    );
    sandbox.ok(&["cancel", "--top", "--yes"]);
    assert_eq!((sandbox.state(&parent).as_str(), sandbox.state(&child).as_str()), ("cancelled", "scheduled"));
    assert!(sandbox.ok(&["audit"]).contains("top=true"));
    sandbox.refuses(&[(&["jobs", "--top", "--parent", &parent], &["cannot be used with"])]);
}
