//! Branches whose children come from tables, or from more items than fit into memory; and forks of their parents.

use std::sync::atomic::{AtomicI64, Ordering};

use windlass::{prelude::*, store::rusqlite::Connection, testing::Lab};

use super::{On, on_every_store, transactions::client};

on_every_store!(a_fork_before_the_merge_spawns_its_own_children);

/// A row of a table of the user.
#[derive(Serialize, Deserialize, Clone)]
struct Order {
    id: i64,
    total: i64,
}

impl Task for Order {
    const KIND: &'static str = "sources_order";
    type Output = i64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<i64, Failure> {
        Ok(self.total)
    }
}

/// Settles the orders of a month.
#[derive(Serialize, Deserialize)]
struct Settle {
    query: Option<String>,
}

impl Workflow for Settle {
    const KIND: &'static str = "sources_settle";
    type Output = i64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<i64, Failure> {
        let rows = match &self.query {
            Some(query) => Rows::<Order>::query(query),
            None => Rows::<Order>::table("orders").filter("month = 10"),
        };
        let branch = flow.branch("orders").chunk(4).spawn_each("order", rows, |order| order);
        branch.automerge().reduce(0, |sum: i64, total: i64| sum + total).await
    }
}

async fn orders(url: &str) {
    let table = "create table if not exists orders (id bigint primary key, month int not null, total bigint not null)";
    let row = |n: i64| format!("({}, {}, {n})", n * 10, if n % 2 == 0 { 10 } else { 11 });
    let rows: Vec<String> = (1..=20).map(row).collect();
    let insert = format!("insert into orders values {} on conflict do nothing", rows.join(", "));
    match url.strip_prefix("sqlite://") {
        Some(path) => {
            let connection = Connection::open(path).expect("opened");
            connection.busy_timeout(Duration::from_secs(5)).expect("set");
            connection.execute_batch(&format!("{table}; {insert}")).expect("filled");
        }
        None => client(url).await.batch_execute(&format!("{table}; {insert}")).await.expect("filled"),
    }
}

async fn rows_of_a_table_become_children(on: On) {
    let store = on.fresh().await;
    orders(&store.url).await;
    let lab = Lab::on(&store.url, |engine| engine.task::<Order>().workflow::<Settle>()).await;
    let job = lab.submit(Settle { query: None }).await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), (1..=10).map(|n| 2 * n).sum::<i64>());
    // The name of a child is the key of its row.
    let engine = lab.engine().await;
    let children = engine.inspect().children(job.id(), None, 20).await.expect("children");
    let mut items = Vec::new();
    for child in &children {
        let child = engine.inspect().job(child.id).await.expect("read").expect("the job exists");
        items.push(child.position.expect("a child").key("october"));
    }
    let expected: Vec<String> = (1..=10).map(|n| format!("october$orders$order_{}", 20 * n)).collect();
    assert_eq!(items, expected);
    for (query, text) in [
        ("select id, total from orders order by total", "has an order of its own"),
        ("select total from orders", "id"),
        ("select id, total from nowhere", "nowhere"),
        ("select id, 'x' as total from orders", "does not decode as"),
        ("select total % 3 as id, total from orders", "unique"),
    ] {
        let job = lab.submit(Settle { query: Some(query.into()) }).await;
        lab.run().await;
        let error = lab.result(job).await.expect_err(query).to_string();
        assert!(error.contains(text), "{query}: {error}");
    }
    let query = "select id, total from orders where month = 11".to_owned();
    let job = lab.submit(Settle { query: Some(query) }).await;
    lab.run().await;
    assert_eq!(lab.result(job).await.expect("done"), (0..10).map(|n| 2 * n + 1).sum::<i64>());
}

async fn rows_of_a_table_survive_every_crash(on: On) {
    let report = on
        .crash(
            |engine| engine.task::<Order>().workflow::<Settle>(),
            async |lab| {
                orders(lab.url()).await;
                let job = lab.submit(Settle { query: None }).await;
                lab.run().await;
                lab.result(job).await.map_err(|error| error.to_string())
            },
        )
        .await;
    assert_eq!(report.outcome, Ok(110));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_in_sqlite_become_children() {
    rows_of_a_table_become_children(On::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_in_postgres_become_children() {
    rows_of_a_table_become_children(On::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_in_sqlite_survive_every_crash() {
    rows_of_a_table_survive_every_crash(On::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_in_postgres_survive_every_crash() {
    rows_of_a_table_survive_every_crash(On::Postgres).await;
}

/// The number of items in memory, and the most at once.
static ALIVE: AtomicI64 = AtomicI64::new(0);
static MOST: AtomicI64 = AtomicI64::new(0);

/// An item that counts how many exist.
struct Heavy(u64);

impl Heavy {
    fn new(n: u64) -> Heavy {
        let alive = ALIVE.fetch_add(1, Ordering::Relaxed) + 1;
        MOST.fetch_max(alive, Ordering::Relaxed);
        Heavy(n)
    }
}

impl Drop for Heavy {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Serialize, Deserialize)]
struct Light(u64);

impl Task for Light {
    const KIND: &'static str = "sources_light";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        Ok(self.0 % 2)
    }
}

#[derive(Serialize, Deserialize)]
struct Million {
    n: u64,
}

impl Workflow for Million {
    const KIND: &'static str = "sources_million";
    type Output = (u64, u64);
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(u64, u64), Failure> {
        let items = (0..self.n).map(Heavy::new);
        let branch = flow.branch("all").packed().spawn_each("item", items, |heavy| Light(heavy.0));
        let count = |(count, odd): (u64, u64), n: u64| (count + 1, odd + n);
        branch.automerge().reduce((0, 0), count).await
    }
}

/// A source of a million items, of which a few chunks at most are in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_of_a_million_items_is_read_in_chunks() {
    const N: u64 = 1_000_000;
    let store = On::Sqlite.fresh().await;
    let engine = windlass::Engine::builder(&store.url)
        .task::<Light>()
        .workflow::<Million>()
        .start()
        .await
        .expect("started");
    let job = engine.submit(Million { n: N }).await.expect("submitted");
    assert_eq!(job.result().await.expect("done"), (N, N / 2));
    let most = MOST.load(Ordering::Relaxed);
    assert!((1..=4_000).contains(&most), "{most} items were in memory at once");
    let journal = engine.inspect().journal(job.id(), None, 100).await.expect("journal");
    assert!(journal.len() < 10, "{} entries", journal.len());
    engine.stop().await;
}

/// Forked before and after its branch is merged.
#[derive(Serialize, Deserialize)]
struct Forked;

impl Workflow for Forked {
    const KIND: &'static str = "sources_forked";
    type Output = i64;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<i64, Failure> {
        flow.branch("orders").spawn_each("order", 1..4_i64, |n| Order { id: n, total: n }).await?;
        flow.step("between", async || Ok(())).await?;
        let sum = flow.merge_branch("orders").reduce(0, |sum: i64, n: i64| sum + n).await?;
        flow.step("after", move || async move { Ok(sum) }).await
    }
}

async fn a_fork_before_the_merge_spawns_its_own_children(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.task::<Order>().workflow::<Forked>()).await;
    let job = lab.submit(Forked).await;
    lab.run().await;
    let engine = lab.engine().await;
    let control = engine.control("test");
    let before = control.fork().before("between").run(job.id()).await.expect("forked");
    let after = control.fork().before("after").run(job.id()).await.expect("forked");
    lab.run().await;
    for (fork, branches) in [(before, 1), (after, 0)] {
        assert_eq!(engine.result::<i64>(fork).await.expect("done"), 6, "{on:?}");
        assert_eq!(engine.inspect().branches(fork).await.expect("branches").len(), branches, "{on:?}");
    }
}
