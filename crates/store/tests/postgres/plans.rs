//! The plans of statements in a large store: each walks an index, and reads only the rows of its batch.

use std::collections::BTreeSet;

use windlass_store::{ClaimRequest, conformance::kit::*, postgres::Postgres};

/// 1,000,000 jobs: 200,000 ready in lane 1, 100,000 ready in lane 2 (of a kind that is not served here), 100,000 due next year, the
/// rest done. Every second job of lane 1 has waited for a signal, and has two of that name and one of another.
const MILLION_JOBS: &str = "
    insert into queues (name) values ('default');
    insert into kinds (name) values ('served'), ('unserved');
    insert into lanes (queue, kind, version) values (1, 1, 1), (1, 2, 1);
    insert into workers (id, name, lease_until) values (7, 'w', 9000000000000000);
    insert into jobs (id, submitted_at, due_at, lane, kind, priority, codec, digest, input, state, wait_names)
    select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 0,
           case when n between 300001 and 400000 then 32000000000000000 else n end,
           case when n between 200001 and 300000 then 2 else 1 end, 1, 0, 0, '', '{\"n\":1}',
           case when n <= 400000 then 0 else 1 end, case when n <= 200000 and n % 2 = 0 then '{go}'::text[] end
    from generate_series(1, 1000000) n;
    insert into signals (job, name, at, codec, payload)
    select id, case n when 2 then 'other' else 'go' end, 0, 0, '1' from jobs, generate_series(1, 3) n where wait_names is not null;
    insert into ready (lane, rank, job) select lane, due_at, id from jobs where state = 0 and due_at <= 300000;
    insert into timers (due_at, job, purpose) select due_at, id, 0 from jobs where state = 0 and due_at > 300000";

/// Collects the nodes of a plan.
fn nodes<'a>(plan: &'a serde_json::Value, into: &mut Vec<&'a serde_json::Value>) {
    into.push(plan);
    for child in plan["Plans"].as_array().into_iter().flatten() {
        nodes(child, into);
    }
}

#[tokio::test]
async fn a_claim_reads_only_its_batch_of_a_million_jobs() {
    let options = super::fresh();
    Postgres::migrate(&options, None).await.expect("migrated");
    let client = Postgres::client(&options).await.expect("connected");
    // The planner knows the tables as empty before they are filled.
    vacuum(&client).await;
    client.batch_execute(MILLION_JOBS).await.expect("filled");
    // The first claim of an idle lane has just been prepared, and is planned with the server's defaults.
    client
        .batch_execute(&format!("reset all; set search_path to {}", schema(&client).await))
        .await
        .expect("reset");
    assert_claims_read_only_their_batch(&client, "idle", 1).await;
    misjudge(&client).await;
    assert_claims_read_only_their_batch(&client, "idle_misjudged", 4).await;
    client.batch_execute("analyze").await.expect("analysed");
    assert_claims_read_only_their_batch(&client, "idle_analysed", 2).await;
    let client = Postgres::client(&options).await.expect("connected");
    assert_claims_read_only_their_batch(&client, "busy", 3).await;
    assert_a_claim_of_one_job_reads_only_that(&client).await;
    assert_backlog_reads_up_to_its_cap(&client).await;
}

/// Vacuums and analyses the store's own tables. Those of other tests in the same database are left alone: two vacuums of one table wait
/// for each other, and both for its truncation.
async fn vacuum(client: &tokio_postgres::Client) {
    let sql =
        "select string_agg(format('%I', tablename), ', ') from pg_tables where schemaname = current_schema()";
    let tables: String = client.query_one(sql, &[]).await.expect("read").get(0);
    client.batch_execute(&format!("vacuum analyze {tables}")).await.expect("vacuumed");
}

/// Makes the planner take large tables for empty, as if vacuum had run while they were filled.
async fn misjudge(client: &tokio_postgres::Client) {
    let sql = "update pg_class set reltuples = 0, relpages = greatest(1, pg_relation_size(oid) / 8192)
               where relnamespace = current_schema()::regnamespace and relkind in ('r', 'i')";
    client.batch_execute(sql).await.expect("misjudged");
}

async fn schema(client: &tokio_postgres::Client) -> String {
    client.query_one("select current_schema()::text", &[]).await.expect("read").get(0)
}

async fn assert_claims_read_only_their_batch(client: &tokio_postgres::Client, how: &str, run: u32) {
    for (name, sql, lanes, floors) in [
        ("one", statement("claim.one_lane").1, "{1}", "{-9223372036854775808}"),
        ("lanes", statement("claim.several_lanes").1, "{1,3,4}", "{0,0,0}"),
    ] {
        // Claims of several lanes are never sent without settings.
        if how != "busy" && name != "one" {
            continue;
        }
        let name = format!("{name}_{how}");
        client
            .batch_execute(&format!(
                "prepare {name} (int8, int8, int8, int4[], int4[], int8, int8[], bool, int8[], int4, bool) as {sql}"
            ))
            .await
            .expect("prepared");
        // Several times: what a claim leaves must not make the next one more expensive.
        for number in 1..=3 {
            let call = format!(
                "{name} (null, 7, {run}{number}{}, '{lanes}', '{{-1}}', 100, '{{}}', false, '{floors}', 1, false)",
                lanes.len()
            );
            let row = client
                .query_one(&format!("explain (analyze, buffers, format json) execute {call}"), &[])
                .await
                .expect("explained");
            let plan: serde_json::Value = row.get(0);
            let plan = &plan[0]["Plan"];
            let mut all = Vec::new();
            nodes(plan, &mut all);
            let scans: Vec<_> = all.iter().filter(|node| node["Relation Name"].is_string()).collect();
            let read = |node: &serde_json::Value| {
                node["Actual Rows"].as_f64().unwrap_or(0.0) * node["Actual Loops"].as_f64().unwrap_or(0.0)
                    + node["Rows Removed by Filter"].as_f64().unwrap_or(0.0)
            };
            for node in &scans {
                // With the server's defaults, a table of a few rows may be scanned.
                assert!(how != "busy" || node["Node Type"] != "Seq Scan", "{name}: {node:#}");
                assert!(
                    read(node) <= 400.0,
                    "{name}: reads {} rows of {}",
                    read(node),
                    node["Relation Name"]
                );
            }
            let walked: BTreeSet<&str> = all.iter().filter_map(|node| node["Index Name"].as_str()).collect();
            let keys = ["ready_pkey", "jobs_pkey", "signals_pkey"];
            assert!(keys.iter().all(|key| walked.contains(key)), "{name}: {walked:?}");
            let pages = plan["Shared Hit Blocks"].as_u64().unwrap_or(0)
                + plan["Shared Read Blocks"].as_u64().unwrap_or(0);
            assert!(pages < 2_500, "{name}: a claim of 100 read {pages} pages");
        }
    }
}

async fn assert_a_claim_of_one_job_reads_only_that(client: &tokio_postgres::Client) {
    let sql = statement("claim.one_job").1;
    let types = "int8, int8, int8, int4[], int4[], int8, int8[], bool, int8[], int4, bool, uuid, int8";
    client.batch_execute(&format!("prepare one_job ({types}) as {sql}")).await.expect("prepared");
    for (number, job) in [(901, 150_001), (902, 150_002)] {
        let call = format!(
            "one_job (null, 7, {number}, '{{1}}', '{{-1}}', 1, '{{}}', false, '{{-9223372036854775808}}', 1, false, \
             '00000000-0000-7000-8000-{job:012x}', 60000000)"
        );
        let explain = format!("explain (analyze, format json) execute {call}");
        let plan: serde_json::Value = client.query_one(&explain, &[]).await.expect("explained").get(0);
        let mut all = Vec::new();
        nodes(&plan[0]["Plan"], &mut all);
        for node in all.iter().filter(|node| node["Relation Name"].is_string()) {
            let rows =
                node["Actual Rows"].as_f64().unwrap_or(0.0) * node["Actual Loops"].as_f64().unwrap_or(0.0);
            let read = rows + node["Rows Removed by Filter"].as_f64().unwrap_or(0.0);
            assert!(node["Node Type"] != "Seq Scan" && read <= 10.0, "reads {read} rows: {node:#}");
        }
        let walked: BTreeSet<&str> = all.iter().filter_map(|node| node["Index Name"].as_str()).collect();
        assert!(["ready_pkey", "jobs_pkey"].iter().all(|key| walked.contains(key)), "{walked:?}");
        let sql = "select count(*) from claims where number = $1";
        let claimed: i64 = client.query_one(sql, &[&i64::from(number)]).await.expect("counted").get(0);
        assert_eq!(claimed, 1, "the job was ready");
    }
}

/// 20,000 machines: the first half are parked, each with three signals, transitions and journal entries and a value in its context;
/// the others are children of the first.
const MACHINES: &str = "
    delete from journal;
    insert into queues (name) values ('default');
    insert into kinds (name) values ('served');
    insert into lanes (queue, kind, version) values (1, 1, 1);
    insert into jobs (id, submitted_at, due_at, lane, kind, priority, codec, digest, input, parked, wait_names, wait_needs, wait,
                      parent, parent_rev, serial_key, serial_position)
    select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 0, n, 1, 1, 0, 0, '', '1',
           case when n < 10000 then 1 end, case when n < 10000 then '{go,stop}'::text[] end, 1, '{}',
           case when n >= 10000 then '00000000-0000-7000-8000-000000000000'::uuid end, case when n >= 10000 then 1 end,
           n, n
    from generate_series(0, 19999) n;
    insert into serial_keys (key) select n::text from generate_series(0, 19999) n;
    insert into serial_holders (serial_key, job) select serial_key, id from jobs;
    insert into signals (job, name, at, codec, payload)
    select id, case n when 1 then 'go' else 'other' end, 0, 0, '1' from jobs, generate_series(1, 3) n where parked = 1;
    insert into delivered_signals (job, name, dedup) select job, name, number::text from signals;
    insert into transitions (job, rev, stage, next, outcome, at, worker)
    select id, n, 'a', 'b', 'next', 0, 7 from jobs, generate_series(1, 3) n where parked = 1;
    insert into journal (job, seq, call_kind, event, name, at, codec, payload)
    select id, n, 1, 3, 'call', 0, 0, '1' from jobs, generate_series(1, 3) n where parked = 1;
    insert into context (job, name, codec, value) select id, 'name', 0, '1' from jobs where parked = 1";

/// A statement, found by its file and name.
pub(super) fn statement(path: &'static str) -> (&'static str, &'static str) {
    let all = Postgres::STATEMENTS.iter();
    let mut found = all.filter(|(file, name, _)| path.split_once('.') == Some((*file, *name)));
    (path, found.next().unwrap_or_else(|| panic!("there is no statement {path}")).2)
}

/// An array of the ids of a hundred jobs, from the `n`th on.
pub(super) fn hundred(n: u32) -> String {
    let ids: Vec<String> = (n..n + 100).map(|n| format!("00000000-0000-7000-8000-{n:012x}")).collect();
    format!("'{{{}}}'", ids.join(","))
}

/// An array of a hundred equal values.
pub(super) fn times(value: &str) -> String {
    format!("'{{{}}}'", vec![value; 100].join(","))
}

/// The claim of worker 7 for a hundred changes, as the parameters of statements that commit.
pub(super) fn claims() -> String {
    format!("{}, '{{7}}', '{{1}}'", times("1"))
}

/// Many claims, among them that one.
const CLAIMS: &str = "insert into claims (worker, number, claimed_at, solo, jobs, epochs) \
     select w, n, 0, false, '{}', '{}' from generate_series(1, 9) w, generate_series(1, 500) n on conflict do nothing";

/// Plans are made by the first call, while the tables are empty, and must still be good when they are full.
#[tokio::test]
async fn steps_waits_and_signals_read_only_their_batch() {
    let (zero, one, seven, null) = (times("0"), times("1"), times("7"), times("null"));
    let change = |n: u32| format!("null, {}, {zero}, {zero}, {seven}, {zero}, {}", hundred(n), claims());
    let (ran, saved) = (times("a"), format!("{}, {zero}, {}", times("b"), times("x")));
    let (parked, children) = (hundred(0), hundred(15_000));
    let consumed = format!("{parked}, {one}");
    let waits = format!("{}, {}, {}, {one}, {seven}", times("wait"), times("x"), times("go"));
    let ended = format!("{}, {one}, {null}, {null}, {zero}, {zero}, {}", times("done"), times("x"));
    let first = "'00000000-0000-7000-8000-000000000000'";
    let (not, all, none) =
        (times("f"), times("t"), "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'");
    // One entry per change.
    let entries = |n: u32| {
        let (call, seq) = (times("call"), times("17"));
        format!("{}, {seq}, {one}, {one}, {call}, {call}, {null}, {zero}, {zero}, {}", hundred(n), times("x"))
    };
    let which = |n: u32| format!("{}, {zero}, {zero}, {seven}, {one}", hundred(n));
    let step = format!("{ran}, {saved}, {consumed}, {all}");
    let calls = [
        (statement("commit.next"), format!("{}, {}, {step}, {not}", change(11_000), entries(11_000))),
        (
            statement("commit.next_entry"),
            format!(
                "null, '00000000-0000-7000-8000-{:012x}', 0, 0, 7, 0, 1, false, true, 17, 1::int2, 1::int2, 'call', null, \
                 null, 0, 0::int2, 'x'",
                11_600
            ),
        ),
        (
            statement("commit.done_journal"),
            format!("{}, {}, {zero}, {}, 1", change(11_700), entries(11_700), times("x")),
        ),
        (statement("journal.clear"), which(0)),
        (statement("journal.forget_entries"), format!("{}, {one}", which(100))),
        (
            statement("journal.set_context"),
            format!("{}, {}, {zero}, {}", which(100), times("name"), times("x")),
        ),
        (statement("commit.start_unwind"), format!("{}, {}", which(100), times("x"))),
        (statement("inspect.journal"), format!("{first}, 0, 100")),
        (statement("inspect.context"), first.into()),
        (statement("fork.find_entry"), format!("{first}, 2")),
        (
            statement("fork.copy"),
            format!(
                "{first}, '00000000-0000-7000-8000-{:012x}', 9, 12::int2, 1::int2, 'f', 0, 0::int2, 'x'",
                11_900
            ),
        ),
        (
            statement("reap.add_lost_attempts"),
            format!("null, {}, {zero}, {seven}, {zero}, {}", hundred(12_500), times("x")),
        ),
        (statement("control.start_unwind"), format!("{}, {}, 9000, 1", hundred(16_000), times("x"))),
        (
            statement("commit.next_single"),
            format!(
                "null, '00000000-0000-7000-8000-{:012x}', 0, 0, 7, 0, 1, false, 'a', 'b', 0::int2, 'x'",
                11_500
            ),
        ),
        (
            statement("waits.park"),
            format!("{}, {}, {step}, {not}, {waits}, 9000, 1, 1, 1", change(12_000), entries(12_000)),
        ),
        (
            statement("commit.end_with_step"),
            format!("{}, {}, {step}, {ended}, 1", change(13_000), entries(13_000)),
        ),
        (
            statement("commit.retry"),
            format!(
                "{}, {none}, {ran}, {saved}, {consumed}, {not}, {one}, {null}, {null}, 9000, 1, 1, 1",
                change(14_000)
            ),
        ),
        (
            statement("signals.deliver"),
            format!("null, {parked}, {}, {}, {zero}, {}, 1000", times("go"), times("9"), times("x")),
        ),
        (statement("commit.lock_jobs"), parked.clone()),
        (statement("waits.wake"), format!("null, {parked}, 1, 1, 1")),
        (statement("claim.inbox"), format!("{parked}, {}, {}", times("f"), times("go"))),
        (statement("commit.count_child_ends"), format!("null, {children}, -1, '{{}}'")),
        (statement("serial.enter"), format!("{children}, 1, 1")),
        (statement("control.lock_jobs"), children.clone()),
        (statement("timers.lock_jobs"), children.clone()),
        (statement("reap.lock_jobs"), children.clone()),
        (statement("children.child_ends"), format!("{first}, 1, null, 100")),
        (statement("children.live_children"), format!("1, {first}, 1, 100")),
        (statement("inspect.transitions"), format!("{first}, null, 100")),
        (statement("inspect.transition_counts"), "'served', 100".into()),
        (
            statement("prune.jobs"),
            format!(
                "{children}, 0, '{{}}', '{{}}', '{{}}', 9000, {children}, array_fill('red'::text, array[100]), 1"
            ),
        ),
        (statement("repair.met_waits"), String::new()),
    ];
    assert_reads_only_its_batch(&calls, &format!("{MACHINES}; {CLAIMS}")).await;
}

/// Statements without settings have just been prepared and are planned with the server's defaults: before the planner knows that the
/// tables are full, and after.
#[tokio::test]
async fn statements_without_settings_read_only_their_batch() {
    let options = super::fresh();
    Postgres::migrate(&options, None).await.expect("migrated");
    let client = Postgres::client(&options).await.expect("connected");
    vacuum(&client).await;
    let jobs = "update claims set jobs = array(select id from jobs order by id limit 100), epochs = array_fill(0, array[100])
                 where worker = 7 and number <= 10";
    let gates = "insert into gates (queue, writer, version) select q, w, 1 from generate_series(0, 99) q, generate_series(0, 63) w";
    client.batch_execute(&format!("{MACHINES}; {CLAIMS}; {jobs}; {gates}")).await.expect("filled");
    client
        .batch_execute(&format!("reset all; set search_path to {}", schema(&client).await))
        .await
        .expect("reset");
    let job = format!("null, '00000000-0000-7000-8000-{:012x}', 0, 0, 7, 0, 1, false", 11_500);
    let step = format!("{job}, 'a', 'b', 0::int2, 'x'");
    let entry = format!("{job}, true, 17, 1::int2, 1::int2, 'call', null, null, 0, 0::int2, 'x'");
    let calls = [
        ("step", statement("commit.next_single").1, step.clone()),
        ("further_step", statement("commit.next_single_further").1, step),
        ("entry", statement("commit.next_entry").1, entry.clone()),
        ("further_entry", statement("commit.next_entry_further").1, entry),
        ("gate", statement("gates.versions").1, "'{0,1,2}'".into()),
        ("renew", statement("workers.renew").1, "null, 7, 1000, '{1,2,3}', '{4}', '[]'".into()),
    ];
    for how in ["unknown", "misjudged", "analysed"] {
        if how == "misjudged" {
            misjudge(&client).await;
        }
        for (name, text, call) in &calls {
            let name = format!("{name}_{how}");
            client.batch_execute(&format!("prepare {name} as {text}")).await.expect(&name);
            assert_reads_few_rows(&client, &name, &format!("execute {name} ({call})"), false).await;
        }
        if how == "misjudged" {
            client.batch_execute("analyze").await.expect("analysed");
        }
    }
}

/// Sends statements to an empty store, fills it, and sends them again: they must walk indexes, and read only the rows of their
/// batch.
pub(super) async fn assert_reads_only_its_batch(calls: &[((&str, &str), String)], fill: &str) {
    let options = super::fresh();
    Postgres::migrate(&options, None).await.expect("migrated");
    let client = Postgres::client(&options).await.expect("connected");
    let execute = |path: &str, call: &str| match (path.replace('.', "_"), call) {
        (name, "") => format!("execute {name}"),
        (name, call) => format!("execute {name} ({call})"),
    };
    for ((name, text), call) in calls {
        client.batch_execute(&format!("prepare {} as {text}", name.replace('.', "_"))).await.expect(name);
        client.batch_execute(&execute(name, call)).await.expect(name);
    }
    client.batch_execute(fill).await.expect("filled");
    for ((name, _), call) in calls {
        assert_reads_few_rows(&client, name, &execute(name, call), true).await;
    }
    // Again with statistics of the tables: plans are made again.
    client.batch_execute("analyze").await.expect("analysed");
    for ((name, _), call) in calls {
        assert_reads_few_rows(&client, name, &execute(name, call), true).await;
    }
}

/// Tables that a pulse reads whole: they are short however many jobs there are.
const SHORT: [&str; 5] = ["gates", "job_counts", "workers", "schedules", "operations"];

/// Checks how many rows a statement reads. Unless it must go `by_index`, it may scan a small table.
async fn assert_reads_few_rows(client: &tokio_postgres::Client, name: &str, execute: &str, by_index: bool) {
    // Its writes are rolled back.
    client.batch_execute("begin").await.expect("begun");
    let explained = client.query_one(&format!("explain (analyze, format json) {execute}"), &[]).await;
    client.batch_execute("rollback").await.expect("rolled back");
    let plan: serde_json::Value = explained.unwrap_or_else(|error| panic!("{name}: {error:?}")).get(0);
    let mut all = Vec::new();
    nodes(&plan[0]["Plan"], &mut all);
    for node in all.iter().filter(|node| node["Relation Name"].is_string()) {
        let rows =
            |what: &str| node[what].as_f64().unwrap_or(0.0) * node["Actual Loops"].as_f64().unwrap_or(0.0);
        let read = rows("Actual Rows") + rows("Rows Removed by Filter");
        // There are few claims, queues, kinds and lanes, which may be scanned.
        let relation = node["Relation Name"].as_str().unwrap_or_default();
        let may_scan = ["claims", "queues", "kinds", "lanes"].contains(&relation)
            || name == "pulse.pulse" && SHORT.contains(&relation);
        assert!(may_scan || !by_index || node["Node Type"] != "Seq Scan", "{name}: {node:#}");
        let limit = match may_scan && !by_index {
            true => 5_000.0,
            false if name == "repair.met_waits" => 4_000.0,
            false => 400.0,
        };
        assert!(read <= limit, "{name}: reads {read} rows of {}: {node:#}", node["Relation Name"]);
    }
}

async fn assert_backlog_reads_up_to_its_cap(client: &tokio_postgres::Client) {
    let sql = statement("inspect.backlog").1;
    client.batch_execute(&format!("prepare backlog (int8) as {sql}")).await.expect("prepared");
    let explained = client.query_one("explain (analyze, format json) execute backlog (500)", &[]).await;
    let plan: serde_json::Value = explained.expect("explained").get(0);
    let mut all = Vec::new();
    nodes(&plan[0]["Plan"], &mut all);
    for node in all.iter().filter(|node| node["Relation Name"].is_string()) {
        let rows =
            |what: &str| node[what].as_f64().unwrap_or(0.0) * node["Actual Loops"].as_f64().unwrap_or(0.0);
        let read = rows("Actual Rows") + rows("Rows Removed by Filter");
        assert!(read <= 1_500.0, "reads {read} rows of {}: {node:#}", node["Relation Name"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_sends_the_same_few_statements_however_many_jobs_there_are() {
    let mut counts = Vec::new();
    for ready in [400, 20_000] {
        let store = super::open_fresh().await;
        for chunk in jobs(0, ready).chunks(5_000) {
            submit(&store, chunk).await;
        }
        let worker = worker(&store, 1).await;
        let kinds = [kind(KIND, 1), kind("other", 1)];
        let request =
            |number| ClaimRequest { kinds: kinds.clone().into(), ..claim_request(worker, number, 100) };
        // The first claim also reads the lanes.
        claim(&store, at(0), &request(1)).await;
        let before = store.statements();
        assert_eq!(claim(&store, at(0), &request(2)).await.len(), 100);
        counts.push(store.statements() - before);
    }
    assert_eq!(counts[0], counts[1]);
    assert!(counts[0] <= 6, "{counts:?}");
}

#[tokio::test]
async fn postgres_accepts_every_statement() {
    let options = super::fresh();
    Postgres::migrate(&options, None).await.expect("migrated");
    let client = Postgres::client(&options).await.expect("connected");
    let mut refused = Vec::new();
    for (file, name, text) in Postgres::STATEMENTS {
        if let Err(error) = client.prepare(text).await {
            let message =
                error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned());
            refused.push(format!("{file}.{name}: {message}"));
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}
