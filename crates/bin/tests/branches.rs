//! Branches through the binary, on both stores: a program of one's own has opened them.

mod common;

use std::{path::PathBuf, time::Duration};

use common::{Ended, Place, until};
use serde_json::{Value, json};
use windlass::prelude::*;
use windlass_testpg::Cluster;

#[test]
fn branches_are_shown_explained_and_redriven() {
    let place = Place::new();
    let url = format!("sqlite://{}", place.path("windlass.db").display());
    operated(&place, &url);
}

#[test]
fn branches_are_shown_explained_and_redriven_on_postgres() {
    let cluster = Cluster::start().expect("PostgreSQL");
    let place = Place::new();
    let url = format!("{}?schema=jobs", cluster.url());
    place.write("windlass.toml", &format!("store = '{url}'\n"));
    operated(&place, &url);
}

/// Does what it is told: ends at once, waits for a file, or fails until there is one.
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
                () = cx.cancelled() => return Err(Failure::stop("it was told to end")),
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
        Ok(2 * self.n)
    }
}

/// A child of a kind that nobody serves.
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
    /// Every so many-th fails before there is a file.
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

/// The program whose jobs they are, and the commands.
struct Program<'a> {
    place: &'a Place,
    runtime: tokio::runtime::Runtime,
    engine: Engine,
}

impl Program<'_> {
    fn submit(&self, key: &str, job: Pieces) -> String {
        let submitted = self.runtime.block_on(async { self.engine.submit(job).key(key).await });
        submitted.expect("submitted").id().to_string()
    }

    /// What `branches` tells of the first branch, once that is so.
    fn branch(&self, job: &str, what: &str, reached: impl Fn(&Value) -> bool) -> Value {
        until(&format!("{job} is {what}"), || {
            let ended = self.place.run(&["branches", job, "--json"]);
            let told: Value = serde_json::from_str(&ended.out).ok()?;
            Some(told["branches"][0].clone()).filter(|branch| branch["sealed"] == true && reached(branch))
        })
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.place.path(name))
    }

    fn said(&self, args: &[&str], parts: &[&str]) -> String {
        let said = self.place.ok(args);
        for part in parts {
            assert!(said.contains(part), "{args:?}: {part:?} is not in\n{said}");
        }
        said
    }

    /// Runs a command that a text names between backticks.
    fn follow(&self, text: &str, begin: &str) -> Ended {
        let command =
            text.split('`').find(|part| part.starts_with(begin)).unwrap_or_else(|| panic!("{text}"));
        let args: Vec<&str> = command.split(' ').skip(1).collect();
        self.place.run(&args)
    }
}

fn operated(place: &Place, url: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let engine = runtime.block_on(async {
        let engine = Engine::open(url).await.expect("opened").task::<Piece>().workflow::<Pieces>();
        engine.queue("default", Pool::slots(8)).start().await.expect("started")
    });
    let program = Program { place, runtime, engine };
    blocked(&program);
    packed(&program);
    strange(&program);
    left_and_cut(&program);
    wrong(&program);
    program.runtime.block_on(program.engine.stop());
}

/// A parent that waits for children that failed, until they are redriven.
fn blocked(program: &Program<'_>) {
    let Program { place, .. } = program;
    let job = Pieces { count: 40, every: 10, fails_before: program.path("mended"), ..Pieces::default() };
    let id = program.submit("orders", job);
    let branch =
        program.branch("orders", "blocked", |branch| branch["pending"] == 0 && branch["blocked"] == true);
    let counts = ["spawned", "done", "failed", "cancelled"].map(|name| branch[name].as_u64());
    assert_eq!(counts, [40, 36, 4, 0].map(Some), "{branch}");
    assert_eq!((&branch["standing"], &branch["sealed"]), (&"merging".into(), &true.into()), "{branch}");
    let redrive = format!("`windlass redrive {id} --branch pieces`");
    program.said(
        &["branches", "orders"],
        &[
            &format!("job {id}, pieces, waiting, key orders\n\npieces  sealed, merging\n  ━━━"),
            "  100.0 %  40 of 40 ended\n  36 done · 4 failed · 0 cancelled · 0 pending\n",
            "  merged when all children have ended well; one that has not is waited for\n",
            "  blocked: 4 children have not ended well and are waited for; mend the cause",
            &redrive,
        ],
    );
    let why = place.json(&["why", "orders", "--json"]);
    assert_eq!(why["cause"], "blocked", "{why}");
    program.said(&["show", "orders"], &["waits      for its branches", "\nbranches\n  BRANCH", &redrive]);
    assert_eq!(place.json(&["show", "orders", "--json"])["branches"][0]["failed"], 4);
    program.said(&["doctor"], &["1 branch waits for 4 children that have not ended well", &redrive]);
    program.said(
        &["diagram", "orders"],
        &["branch: done<br/>40 children, 4 failed", "merge: waiting<br/>of pieces"],
    );
    listed(program, &id);

    // The commands that were named are there, and do what is said of them.
    let ended = program.follow(why["hint"].as_str().expect("a hint"), "windlass branches");
    assert!(ended.out.contains("pieces$piece_9 ") && ended.out.contains("piece 9 is broken"), "{ended:?}");
    let ended = program.follow(why["hint"].as_str().expect("a hint"), "windlass redrive");
    assert_eq!((ended.code, ended.out.as_str()), (0, "4 children retried\n"), "{ended:?}");
    program.branch("orders", "blocked again", |branch| branch["failed"] == 4);
    let watch =
        place.command(&["branches", "orders", "--watch"]).stdout(std::process::Stdio::piped()).spawn();
    place.write("mended", "");
    assert_eq!(place.json(&["redrive", "orders", "--json"])["retried"], 4);
    let watched = watch.expect("started").wait_with_output().expect("ended");
    let page = String::from_utf8(watched.stdout).expect("text");
    assert!(watched.status.success() && page.contains("pieces  merged\n"), "{page}");
    until("it is done", || (place.json(&["show", "orders", "--json"])["output"] == 1_560).then_some(()));
    program.said(&["show", "orders"], &["reduce", "40 spawned, 40 done, 0 failed, 0 cancelled"]);
    let ended = place.run(&["redrive", &id]);
    assert_eq!((ended.code, ended.out.as_str()), (0, "0 children retried\n"));
    assert!(ended.err.contains("no child of these branches has failed"), "{ended:?}");
    program.said(&["audit"], &["redrive", "redrive ended: 4 retried, 0 not"]);
}

/// Children, page by page, by name and by job.
fn listed(program: &Program<'_>, id: &str) {
    let Program { place, .. } = program;
    let failed = place.json(&["branches", id, "--children", "--only", "failed", "--json"]);
    let names: Vec<&Value> =
        failed["children"].as_array().expect("children").iter().map(|child| &child["key"]).collect();
    assert_eq!(names, [9, 19, 29, 39].map(|n| format!("orders$pieces$piece_{n}")).iter().collect::<Vec<_>>());
    let first = program.said(&["branches", id, "--children", "--limit", "30"], &["children of orders\n"]);
    let more = first.lines().find_map(|line| line.strip_prefix("more: windlass ")).expect("a page follows");
    let second = place.ok(&more.split(' ').collect::<Vec<_>>());
    let count = |text: &str| text.lines().filter(|line| line.starts_with("pieces$piece_")).count();
    assert_eq!((count(&first), count(&second)), (30, 10), "{first}{second}");
    assert_eq!(count(&place.ok(&["branches", id, "--children", "--only", "done", "--limit", "100"])), 36);
    assert_eq!(
        place.ok(&["branches", id, "--children", "--only", "live"]),
        "no child is left that has not ended\n"
    );
    program.said(
        &["show", "orders$pieces$piece_9"],
        &[
            "state      failed (stopped): piece 9 is broken",
            &format!("child      branch pieces of job {id}"),
            "called     orders$pieces$piece_9\n",
        ],
    );
    let told = place.json(&["show", &format!("{id}$pieces$piece_9"), "--json"]);
    assert_eq!((&told["called"], &told["place"]["item"]), (&"orders$pieces$piece_9".into(), &"9".into()));
    assert_eq!(place.json(&["why", "orders$pieces$piece_9", "--json"])["cause"], "stopped");
    let jobs =
        place.json(&["jobs", "--parent", "orders", "--branch", "pieces", "--state", "failed", "--json"]);
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(4), "{jobs}");
}

/// Children in blocks, of which some were moved out.
fn packed(program: &Program<'_>) {
    let Program { place, .. } = program;
    let fails_before = program.path("never");
    let job = Pieces { count: 1_500, every: 1_000, fails_before, packed: true, ..Pieces::default() };
    let id = program.submit("packed", job);
    program.branch("packed", "blocked", |branch| branch["blocked"] == true && branch["pending"] == 0);
    let told = place.json(&["show", "packed$pieces$piece_1234", "--json"]);
    assert_eq!((&told["state"], &told["result"]), (&"done".into(), &2_468.into()), "{told}");
    let block = told["block"].as_str().expect("a block");
    program.said(
        &["show", "packed$pieces$piece_1234"],
        &[
            "child packed$pieces$piece_1234\n  state      done\n",
            &format!("branch pieces of job {id}"),
            &format!("block      {block}, which is done"),
            "\ninput\n  {\n    \"n\": 1234\n  }\n\noutput\n  2468\n",
        ],
    );
    let row = place.json(&["show", block, "--json"]);
    let (items, first) = (&row["place"]["items"], row["place"]["item"].as_str().expect("an item"));
    program.said(&["jobs", "--parent", "packed"], &[&format!("block of {items} ")]);
    let called = format!("called     packed$pieces$piece_{first}, the first of {items} children");
    program.said(&["show", block], &[&called, &format!("\nblock\n  {items} children in one job")]);
    let why = place.json(&["why", "packed$pieces$piece_1234", "--json"]);
    assert!(
        why["because"]
            .as_str()
            .expect("a text")
            .starts_with(&format!("It is done. It is in the block {block}."))
    );
    // One that was moved out is a job like any other.
    program.said(
        &["show", "packed$pieces$piece_999"],
        &["job ", "piece 999 is broken", "called     packed$pieces$piece_999\n"],
    );
    let all = place.json(&["branches", "packed", "--children", "--limit", "5000", "--json"]);
    assert_eq!((all["children"].as_array().map(Vec::len), &all["next_after"]), (Some(1_500), &Value::Null));
    let said = place.bad(&["retry", "packed$pieces$piece_1234"]);
    assert!(said.contains("no job of its own") && said.contains(block), "{said}");
}

/// Children of a kind that nobody serves.
fn strange(program: &Program<'_>) {
    let Program { place, .. } = program;
    let id = program.submit("strange", Pieces { count: 3, strangers: 2, ..Pieces::default() });
    program.branch("strange", "through", |branch| branch["done"] == 3);
    let page = program.said(
        &["branches", "strange"],
        &["pieces  sealed, merging", "strangers  sealed, merging", "together  3 of 5 ended, 2 pending"],
    );
    assert!(!page.contains("blocked"), "{page}");
    let told = place.json(&["branches", "strange", "--json"]);
    assert_eq!((&told["open"]["branches"], &told["open"]["pending"]), (&2.into(), &2.into()), "{told}");
    let why = place.json(&["why", "strange$strangers$stranger_1", "--json"]);
    assert_eq!(why["cause"], "kind_unserved", "{why}");
    let why = place.json(&["why", &id, "--json"]);
    assert_eq!(why["cause"], "branches", "{why}");
    until("nothing moves, and that is explained", || {
        let page = place.ok(&["branches", "strange", "--branch", "strangers"]);
        page.contains("still: nothing ends. Of the first that is left").then(|| {
            assert!(page.contains("knows the kind \"stranger\""), "{page}");
        })
    });
    let said = place.ok(&["cancel", "strange"]);
    assert_eq!(
        said,
        format!("{id} cancelled, and its branches are cut: 2 children that have not ended are cancelled\n")
    );
}

/// Children of a parent that has failed, and of one that is cancelled.
fn left_and_cut(program: &Program<'_>) {
    let Program { place, .. } = program;
    let waits_for = program.path("never");
    let job = Pieces { count: 5, waits_for: waits_for.clone(), fails: true, ..Pieces::default() };
    let id = program.submit("left", job);
    until("it has failed", || (place.json(&["show", "left", "--json"])["state"] == "failed").then_some(()));
    let note = "left: the job is failed, and 5 children go on that nobody waits for; ";
    let page =
        program.said(&["branches", "left"], &["pieces  sealed, unmerged", "it was never merged", note]);
    program.said(&["doctor"], &["5 children go on though the job that opened the branch has ended"]);
    // A look that is watched has nothing more to wait for once they are ended, as the page says how.
    let ended = program.follow(&page, "windlass cancel");
    assert!(ended.out.contains("5 jobs that came of it"), "{ended:?}");
    program.branch("left", "through", |branch| branch["cancelled"] == 5);
    assert_eq!(place.run(&["branches", "left", "--watch"]).code, 0);

    let job = Pieces { count: 5, waits_for, ..Pieces::default() };
    let cut = program.submit("cut", job);
    program.branch("cut", "under way", |branch| branch["standing"] == "merging");
    let told = place.json(&["cancel", "cut", "--json"]);
    assert_eq!(told, json!([{ "job": cut, "did": "done", "cut": 5 }]));
    program.branch("cut", "through", |branch| branch["cancelled"] == 5 && branch["cut"] == false);
    // What was cancelled can be had back, and its parent too.
    let ended = place.run(&["redrive", "cut"]);
    assert_eq!(ended.out, "5 children retried\n", "{ended:?}");
    place.ok(&["retry", "cut"]);
    assert_ne!(id, cut);
    program.branch("cut", "under way again", |branch| branch["pending"] == 5);
    place.ok(&["cancel", "cut"]);
}

fn wrong(program: &Program<'_>) {
    const NOBODY: &str = "0199f0c2-6f7a-7000-8000-000000000000";
    let cases: &[(&[&str], &[&str])] = &[
        (&["branches", NOBODY], &["there is no job", "windlass jobs"]),
        (&["branches", "nothing"], &["\"nothing\" is not a job id", "has it as its key", "0199f0c2"]),
        (&["branches", "orders", "--branch", "peaces"], &["has no branch \"peaces\"", "it has pieces"]),
        (&["branches", "orders", "--only", "failed"], &["--children"]),
        (&["branches", "orders", "--children", "--only", "bad"], &["failed, live, done, all"]),
        (&["branches", "orders", "--children", "--after", "7"], &["no place among children"]),
        (&["branches", "orders", "--children", "--branch", "peaces"], &["it has pieces"]),
        (&["branches", "orders", "--watch", "--json"], &["cannot be used with"]),
        (&["redrive", NOBODY], &["there is no job"]),
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
    for (args, parts) in cases {
        let said = program.place.bad(args);
        for part in *parts {
            assert!(said.contains(part), "{args:?} said {said:?}, which lacks {part:?}");
        }
    }
    // A job without branches says so.
    let none = program.place.ok(&["submit", "noop", "--queue", "elsewhere"]);
    program.said(&["branches", none.trim()], &["it has opened no branch yet"]);
}
