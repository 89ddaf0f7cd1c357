//! Branches through the binary, on both stores. A program with kinds of its own opens them.

mod common;

use std::{path::PathBuf, time::Duration};

use common::{Finished, Sandbox, UNKNOWN_JOB, until};
use serde_json::{Value, json};
use windlass::prelude::*;
use windlass_testpg::Cluster;

#[test]
fn branches_are_shown_explained_and_redriven() {
    operate(&Sandbox::new());
}

#[test]
fn branches_are_shown_explained_and_redriven_on_postgres() {
    let cluster = Cluster::start().expect("PostgreSQL");
    operate(&Sandbox::on_postgres(&cluster));
}

/// Ends at once, waits for a file, or fails until a file exists.
#[derive(Serialize, Deserialize)]
struct Piece {
    n: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waits_for: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fails_before: Option<PathBuf>,
}

impl Task for Piece {
    const KIND: &'static str = "piece";
    type Output = u64;
    type Error = Failure;

    async fn run(self, cx: &TaskCx) -> Result<u64, Failure> {
        if self.fails_before.is_some_and(|file| !file.exists()) {
            return Err(Failure::stop(format!("piece {} is broken", self.n)));
        }
        while self.waits_for.as_ref().is_some_and(|file| !file.exists()) {
            tokio::select! {
                () = cx.cancelled() => return Err(Failure::stop("it was cancelled")),
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
        Ok(2 * self.n)
    }
}

/// A child of a kind that no worker serves.
#[derive(Serialize, Deserialize)]
struct Stranger;

impl Task for Stranger {
    const KIND: &'static str = "stranger";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

#[derive(Serialize, Deserialize, Default)]
struct Pieces {
    count: u64,
    /// One in this many fails until a file exists.
    every: u64,
    fails_before: Option<PathBuf>,
    waits_for: Option<PathBuf>,
    packed: bool,
    strangers: u64,
    fails: bool,
}

impl Workflow for Pieces {
    const KIND: &'static str = "pieces";
    type Output = u64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<u64, Failure> {
        let Pieces { count, every, fails_before, waits_for, packed, strangers, fails } = self;
        let piece = move |n: u64| {
            let broken = every > 0 && n % every == every - 1;
            let fails_before = fails_before.clone().filter(|_| broken);
            Piece { n, waits_for: waits_for.clone(), fails_before }
        };
        let branch = flow.branch("pieces");
        let branch = if packed { branch.packed() } else { branch };
        branch.spawn_each("piece", 0..count, piece).await?;
        if strangers > 0 {
            flow.branch("strangers").spawn_each("stranger", 0..strangers, |_| Stranger).await?;
        }
        if fails {
            return Err(Failure::stop("not today"));
        }
        let names = if strangers > 0 { vec!["pieces", "strangers"] } else { vec!["pieces"] };
        flow.merge(names).reduce(0, |sum: u64, n: u64| sum + n).await
    }
}

/// The program that runs the jobs, and the sandbox of the commands.
struct Program<'a> {
    sandbox: &'a Sandbox,
    runtime: tokio::runtime::Runtime,
    engine: Engine,
}

impl Program<'_> {
    fn submit(&self, key: &str, job: Pieces) -> String {
        let submitted = self.runtime.block_on(async { self.engine.submit(job).key(key).await });
        submitted.expect("submitted").id().to_string()
    }

    /// Waits until the first branch is sealed and `reached`. Returns it as `branches --json` prints it.
    fn until_branch(&self, job: &str, what: &str, reached: impl Fn(&Value) -> bool) -> Value {
        until(&format!("{job} is {what}"), || {
            let finished = self.sandbox.run(&["branches", job, "--json"]);
            let answer: Value = serde_json::from_str(&finished.stdout).ok()?;
            Some(answer["branches"][0].clone()).filter(|branch| branch["sealed"] == true && reached(branch))
        })
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.sandbox.path(name))
    }

    /// Runs a command that must succeed and print all of `parts`. Returns what it printed.
    fn prints(&self, args: &[&str], parts: &[&str]) -> String {
        let text = self.sandbox.ok(args);
        for part in parts {
            assert!(text.contains(part), "{args:?}: {part:?} is not in\n{text}");
        }
        text
    }

    /// Runs the command between backticks in a text that begins with `begin`.
    fn run_from(&self, text: &str, begin: &str) -> Finished {
        let command =
            text.split('`').find(|part| part.starts_with(begin)).unwrap_or_else(|| panic!("{text}"));
        let args: Vec<&str> = command.split(' ').skip(1).collect();
        self.sandbox.run(&args)
    }
}

fn operate(sandbox: &Sandbox) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let engine = runtime.block_on(async {
        let engine = Engine::builder(&sandbox.url).task::<Piece>().workflow::<Pieces>();
        engine.queue("default", Pool::slots(8)).start().await.expect("started")
    });
    let program = Program { sandbox, runtime, engine };
    redrive_a_blocked_branch(&program);
    show_packed_children(&program);
    explain_unserved_children(&program);
    cancel_orphans_and_a_parent(&program);
    refuse(&program);
    program.runtime.block_on(program.engine.stop());
}

/// A parent waits for failed children until they are redriven.
fn redrive_a_blocked_branch(program: &Program<'_>) {
    let Program { sandbox, .. } = program;
    let job = Pieces { count: 40, every: 10, fails_before: program.path("fixed"), ..Pieces::default() };
    let id = program.submit("orders", job);
    let branch = program
        .until_branch("orders", "blocked", |branch| branch["pending"] == 0 && branch["blocked"] == true);
    let counts = ["spawned", "done", "failed", "cancelled"].map(|name| branch[name].as_u64());
    assert_eq!(counts, [40, 36, 4, 0].map(Some), "{branch}");
    assert_eq!((&branch["merge_state"], &branch["sealed"]), (&"merging".into(), &true.into()), "{branch}");
    let redrive = format!("`windlass redrive {id} --branch pieces`");
    program.prints(
        &["branches", "orders"],
        &[
            &format!("job {id}, pieces, waiting, key orders\n\npieces  sealed, merging\n  ━━━"),
            "  100.0 %  40 of 40 ended\n  36 done · 4 failed · 0 cancelled · 0 pending\n",
            "  merged when all children are done; a failed or cancelled one is waited for\n",
            "  blocked: the merge waits for 4 unsuccessful children; fix the cause",
            &redrive,
        ],
    );
    let why = sandbox.json(&["why", "orders", "--json"]);
    assert_eq!(why["cause"], "blocked", "{why}");
    assert_eq!(
        (&why["child"]["name"], &why["child"]["cause"]),
        (&"orders$pieces$piece_9".into(), &"stopped".into()),
        "{why}"
    );
    program.prints(
        &["why", "orders"],
        &["(orders$pieces$piece_9) is failed: It failed at ", "piece 9 is broken"],
    );
    program.prints(&["show", "orders"], &["waits      for its branches", "\nbranches\n  BRANCH", &redrive]);
    assert_eq!(sandbox.json(&["show", "orders", "--json"])["branches"][0]["failed"], 4);
    program.prints(&["doctor"], &["1 branch waits for 4 unsuccessful children", &redrive]);
    program.prints(
        &["diagram", "orders"],
        &["branch: done<br/>40 children, 4 failed", "merge: waiting<br/>of pieces"],
    );
    list_children(program, &id);

    // The commands in the hint exist, and do what it says.
    let ended = program.run_from(why["hint"].as_str().expect("a hint"), "windlass branches");
    assert!(
        ended.stdout.contains("pieces$piece_9 ") && ended.stdout.contains("piece 9 is broken"),
        "{ended:?}"
    );
    let ended = program.run_from(why["hint"].as_str().expect("a hint"), "windlass redrive");
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "4 children retried\n"), "{ended:?}");
    program.until_branch("orders", "blocked again", |branch| branch["failed"] == 4);
    let watch =
        sandbox.command(&["branches", "orders", "--watch"]).stdout(std::process::Stdio::piped()).spawn();
    sandbox.write("fixed", "");
    assert_eq!(sandbox.json(&["redrive", "orders", "--json"])["retried"], 4);
    let watched = watch.expect("started").wait_with_output().expect("ended");
    let page = String::from_utf8(watched.stdout).expect("text");
    assert!(watched.status.success() && page.contains("pieces  merged\n"), "{page}");
    until("it is done", || (sandbox.json(&["show", "orders", "--json"])["output"] == 1_560).then_some(()));
    program.prints(&["show", "orders"], &["reduce", "40 spawned, 40 done, 0 failed, 0 cancelled"]);
    let ended = sandbox.run(&["redrive", &id]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "0 children retried\n"));
    assert!(ended.stderr.contains("no child of these branches has failed"), "{ended:?}");
    program.prints(&["audit"], &["redrive", "redrive ended: 4 retried, 0 not"]);
}

/// Lists children page by page, and shows one by its name.
fn list_children(program: &Program<'_>, id: &str) {
    let Program { sandbox, .. } = program;
    let failed = sandbox.json(&["branches", id, "--children", "--only", "failed", "--json"]);
    let names: Vec<&Value> =
        failed["children"].as_array().expect("children").iter().map(|child| &child["key"]).collect();
    assert_eq!(names, [9, 19, 29, 39].map(|n| format!("orders$pieces$piece_{n}")).iter().collect::<Vec<_>>());
    let first = program.prints(&["branches", id, "--children", "--limit", "30"], &["children of orders\n"]);
    let more = first.lines().find_map(|line| line.strip_prefix("more: windlass ")).expect("a page follows");
    let second = sandbox.ok(&more.split(' ').collect::<Vec<_>>());
    let count = |text: &str| text.lines().filter(|line| line.starts_with("pieces$piece_")).count();
    assert_eq!((count(&first), count(&second)), (30, 10), "{first}{second}");
    assert_eq!(count(&sandbox.ok(&["branches", id, "--children", "--only", "done", "--limit", "100"])), 36);
    assert_eq!(sandbox.ok(&["branches", id, "--children", "--only", "live"]), "no child is live\n");
    program.prints(
        &["show", "orders$pieces$piece_9"],
        &[
            "state      failed (stopped): piece 9 is broken",
            &format!("child of   branch pieces of job {id}"),
            "name       orders$pieces$piece_9\n",
        ],
    );
    let answer = sandbox.json(&["show", &format!("{id}$pieces$piece_9"), "--json"]);
    assert_eq!(
        (&answer["child_name"], &answer["position"]["item"]),
        (&"orders$pieces$piece_9".into(), &"9".into())
    );
    assert_eq!(sandbox.json(&["why", "orders$pieces$piece_9", "--json"])["cause"], "stopped");
    let jobs =
        sandbox.json(&["jobs", "--parent", "orders", "--branch", "pieces", "--state", "failed", "--json"]);
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(4), "{jobs}");
}

/// Children in blocks, some of which were promoted.
fn show_packed_children(program: &Program<'_>) {
    let Program { sandbox, .. } = program;
    let fails_before = program.path("never");
    let job = Pieces { count: 1_500, every: 1_000, fails_before, packed: true, ..Pieces::default() };
    let id = program.submit("packed", job);
    program.until_branch("packed", "blocked", |branch| branch["blocked"] == true && branch["pending"] == 0);
    let answer = sandbox.json(&["show", "packed$pieces$piece_1234", "--json"]);
    assert_eq!((&answer["state"], &answer["result"]), (&"done".into(), &2_468.into()), "{answer}");
    let block = answer["block"].as_str().expect("a block");
    program.prints(
        &["show", "packed$pieces$piece_1234"],
        &[
            "child packed$pieces$piece_1234\n  state      done\n",
            &format!("branch pieces of job {id}"),
            &format!("block      {block}, which is done"),
            "\ninput\n  {\n    \"n\": 1234\n  }\n\noutput\n  2468\n",
        ],
    );
    let row = sandbox.json(&["show", block, "--json"]);
    let (items, first) = (&row["position"]["items"], row["position"]["item"].as_str().expect("an item"));
    program.prints(&["jobs", "--parent", "packed"], &[&format!("block of {items} ")]);
    let name = format!("name       packed$pieces$piece_{first}, the first of {items} children");
    program.prints(&["show", block], &[&name, &format!("\nblock\n  {items} children in one job")]);
    let why = sandbox.json(&["why", "packed$pieces$piece_1234", "--json"]);
    assert!(
        why["because"]
            .as_str()
            .expect("a text")
            .starts_with(&format!("It is done. It is packed into the block {block}."))
    );
    // A promoted child is a job like any other.
    program.prints(
        &["show", "packed$pieces$piece_999"],
        &["job ", "piece 999 is broken", "name       packed$pieces$piece_999\n"],
    );
    let all = sandbox.json(&["branches", "packed", "--children", "--limit", "5000", "--json"]);
    assert_eq!((all["children"].as_array().map(Vec::len), &all["next_after"]), (Some(1_500), &Value::Null));
    let text = sandbox.fails(&["retry", "packed$pieces$piece_1234"]);
    assert!(text.contains("not a job of its own") && text.contains(block), "{text}");
}

/// Children of a kind that no worker serves.
fn explain_unserved_children(program: &Program<'_>) {
    let Program { sandbox, .. } = program;
    let id = program.submit("strange", Pieces { count: 3, strangers: 2, ..Pieces::default() });
    program.until_branch("strange", "ended", |branch| branch["done"] == 3);
    let page = program.prints(
        &["branches", "strange"],
        &["pieces  sealed, merging", "strangers  sealed, merging", "total  3 of 5 ended, 2 pending"],
    );
    assert!(!page.contains("blocked"), "{page}");
    let answer = sandbox.json(&["branches", "strange", "--json"]);
    assert_eq!(
        (&answer["unmerged"]["branches"], &answer["unmerged"]["pending"]),
        (&2.into(), &2.into()),
        "{answer}"
    );
    let why = sandbox.json(&["why", "strange$strangers$stranger_1", "--json"]);
    assert_eq!(why["cause"], "kind_unserved", "{why}");
    let why = sandbox.json(&["why", &id, "--json"]);
    assert_eq!(why["cause"], "branches", "{why}");
    assert_eq!(
        (&why["child"]["kind"], &why["child"]["cause"]),
        (&"stranger".into(), &"kind_unserved".into()),
        "{why}"
    );
    until("the stall is explained", || {
        let page = sandbox.ok(&["branches", "strange", "--branch", "strangers"]);
        page.contains("stalled: no child ends. The first live one").then(|| {
            assert!(page.contains("knows the kind \"stranger\""), "{page}");
        })
    });
    let text = sandbox.ok(&["cancel", "strange"]);
    assert_eq!(text, format!("{id} cancelled, and 2 live children of its branches\n"));
}

/// Children of a failed parent, and of a cancelled one.
fn cancel_orphans_and_a_parent(program: &Program<'_>) {
    let Program { sandbox, .. } = program;
    let waits_for = program.path("never");
    let job = Pieces { count: 5, waits_for: waits_for.clone(), fails: true, ..Pieces::default() };
    let id = program.submit("orphaned", job);
    until("it has failed", || {
        (sandbox.json(&["show", "orphaned", "--json"])["state"] == "failed").then_some(())
    });
    let note = "orphaned: the job is failed, and 5 children are live that nothing waits for; ";
    let page = program.prints(&["branches", "orphaned"], &["pieces  sealed, unmerged", "never merged", note]);
    program.prints(&["doctor"], &["5 children are live although the job that opened the branch has ended"]);
    // `--watch` ends once they are cancelled with the command that the page prints.
    let ended = program.run_from(&page, "windlass cancel");
    assert!(ended.stdout.contains("5 descendants"), "{ended:?}");
    program.until_branch("orphaned", "ended", |branch| branch["cancelled"] == 5);
    assert_eq!(sandbox.run(&["branches", "orphaned", "--watch"]).code, 0);

    let job = Pieces { count: 5, waits_for, ..Pieces::default() };
    let cancelled = program.submit("cancelled", job);
    program.until_branch("cancelled", "under way", |branch| branch["merge_state"] == "merging");
    let answer = sandbox.json(&["cancel", "cancelled", "--json"]);
    assert_eq!(answer, json!([{ "job": cancelled, "outcome": "done", "children_cancelled": 5 }]));
    program.until_branch("cancelled", "ended", |branch| {
        branch["cancelled"] == 5 && branch["cancels_children"] == false
    });
    // Cancelled children can be retried, and their parent too.
    let ended = sandbox.run(&["redrive", "cancelled"]);
    assert_eq!(ended.stdout, "5 children retried\n", "{ended:?}");
    sandbox.ok(&["retry", "cancelled"]);
    assert_ne!(id, cancelled);
    program.until_branch("cancelled", "under way again", |branch| branch["pending"] == 5);
    sandbox.ok(&["cancel", "cancelled"]);
}

fn refuse(program: &Program<'_>) {
    let cases: &[(&[&str], &[&str])] = &[
        (&["branches", UNKNOWN_JOB], &["there is no job", "windlass jobs"]),
        (&["branches", "nothing"], &["\"nothing\" is not a job id", "has it as its key", "0199f0c2"]),
        (&["branches", "orders", "--branch", "peaces"], &["has no branch \"peaces\"", "it has pieces"]),
        (&["branches", "orders", "--only", "failed"], &["--children"]),
        (&["branches", "orders", "--children", "--only", "bad"], &["failed, live, done, all"]),
        (&["branches", "orders", "--children", "--after", "7"], &["not a position among children"]),
        (&["branches", "orders", "--children", "--branch", "peaces"], &["it has pieces"]),
        (&["branches", "orders", "--watch", "--json"], &["cannot be used with"]),
        (&["redrive", UNKNOWN_JOB], &["there is no job"]),
        (&["redrive", "orders", "--branch", "peaces"], &["has no branch \"peaces\"", "it has pieces"]),
        (&["redrive", "orders", "--rate", "0"], &["1.."]),
        (
            &["show", "orders$pieces$piece_40"],
            &["no child for the item \"40\"", "windlass branches JOB --children"],
        ),
        (&["show", "orders$peaces$piece_4"], &["has only the branches pieces"]),
        (&["show", "nobody$pieces$piece_4"], &["no job has the id or the key \"nobody\""]),
        (&["jobs", "--branch", "pieces"], &["--parent"]),
        (&["jobs", "--parent", "orders", "--branch", "peaces"], &["it has pieces"]),
    ];
    program.sandbox.refuses(cases);
    // A job without branches.
    let none = program.sandbox.ok(&["submit", "noop", "--queue", "elsewhere"]);
    program.prints(&["branches", none.trim()], &["it has opened no branches yet"]);
}
