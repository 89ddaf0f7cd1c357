//! What statements cost a large store: claims walk an index and touch what they take, however much there is.

use std::collections::BTreeSet;

use windlass_store::postgres::Postgres;

/// 1,000,000 jobs: 200,000 ready in lane 1, 100,000 ready in lane 2 (of a kind nobody here serves), 100,000 due next
/// year, the rest done.
const FILL: &str = "
    insert into queues (name) values ('default');
    insert into kinds (name) values ('served'), ('unserved');
    insert into lanes (queue, kind, version) values (1, 1, 1), (1, 2, 1);
    insert into workers (id, name, lease_until) values (7, 'w', 9000000000000000);
    insert into jobs (id, submitted_at, due_at, lane, kind, priority, codec, digest, input, state)
    select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 0,
           case when n between 300001 and 400000 then 32000000000000000 else n end,
           case when n between 200001 and 300000 then 2 else 1 end, 1, 0, 0, '', '{\"n\":1}',
           case when n <= 400000 then 0 else 1 end
    from generate_series(1, 1000000) n;
    insert into ready (lane, rank, job) select lane, due_at, id from jobs where state = 0 and due_at <= 300000;
    insert into timers (due_at, job, what) select due_at, id, 0 from jobs where state = 0 and due_at > 300000;
    analyze";

/// The nodes of a plan: type, relation, rows per loop, loops.
fn nodes<'a>(plan: &'a serde_json::Value, into: &mut Vec<&'a serde_json::Value>) {
    into.push(plan);
    for child in plan["Plans"].as_array().into_iter().flatten() {
        nodes(child, into);
    }
}

#[tokio::test]
async fn a_claim_costs_its_batch_among_a_million_jobs() {
    let options = super::fresh();
    Postgres::migrate(&options, None).await.expect("migrated");
    let client = Postgres::client(&options).await.expect("connected");
    client.batch_execute(FILL).await.expect("filled");
    for (name, sql, lanes, floors) in [
        ("one", include_str!("../../src/postgres/sql/claim.sql"), "{1}", "{-9223372036854775808}"),
        ("lanes", include_str!("../../src/postgres/sql/claim_lanes.sql"), "{1,3,4}", "{0,0,0}"),
    ] {
        client
            .batch_execute(&format!(
                "prepare {name} (int8, int8, int8, int4[], int4[], int8, int8[], bool, int8[], int4) as {sql}"
            ))
            .await
            .expect("prepared");
        // Once before: what a claim leaves behind must not make the next one dearer.
        for number in 1..=3 {
            let call = format!(
                "{name} (null, 7, {number}{}, '{lanes}', '{{-1}}', 100, '{{}}', false, '{floors}', 1)",
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
                assert_ne!(node["Node Type"], "Seq Scan", "{name}: {node:#}");
                assert!(
                    read(node) <= 400.0,
                    "{name}: touches {} rows of {}",
                    read(node),
                    node["Relation Name"]
                );
            }
            let walked: BTreeSet<&str> =
                scans.iter().filter_map(|node| node["Index Name"].as_str()).collect();
            assert!(walked.contains("ready_pkey") && walked.contains("jobs_pkey"), "{name}: {walked:?}");
            let pages = plan["Shared Hit Blocks"].as_u64().unwrap_or(0)
                + plan["Shared Read Blocks"].as_u64().unwrap_or(0);
            assert!(pages < 2_500, "{name}: a claim of 100 touched {pages} pages");
        }
    }
    a_look_at_the_backlog_costs_its_cap(&client).await;
}

async fn a_look_at_the_backlog_costs_its_cap(client: &tokio_postgres::Client) {
    let sql = include_str!("../../src/postgres/sql/inspect_backlog.sql");
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

#[tokio::test]
async fn postgres_understands_every_statement() {
    let options = super::fresh();
    Postgres::migrate(&options, None).await.expect("migrated");
    let client = Postgres::client(&options).await.expect("connected");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/sql");
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("readable");
        client.prepare(&text).await.unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
    }
}
