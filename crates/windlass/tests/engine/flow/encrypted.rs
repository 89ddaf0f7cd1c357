//! Encrypted workflows: no payload of a workflow can be read in the store, by whichever call it was written.

use std::ops::ControlFlow;

use windlass::{Builder, Codec, First2, State, Unit, model::journal::CallKind, prelude::*, testing::Lab};

use super::{On, transactions::client};

/// The text that must not be readable.
const SECRET: &str = "Kilimanjaro";

/// A cipher that hides text from a search.
struct Shifted;

impl Codec for Shifted {
    fn id(&self) -> u8 {
        78
    }

    fn encode(&self, plain: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(Some(plain.iter().map(|byte| byte.wrapping_add(101)).collect()))
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        Ok(bytes.iter().map(|byte| byte.wrapping_sub(101)).collect())
    }
}

/// Returns its text.
#[derive(Serialize, Deserialize)]
struct Echo {
    text: String,
}

impl Task for Echo {
    const KIND: &'static str = "encrypted_echo";
    type Output = String;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<String, Failure> {
        Ok(self.text)
    }
}

/// Writes the secret in every way in which a workflow can, in two runs, and then fails.
#[derive(Serialize, Deserialize)]
struct Confession {
    secret: String,
    run: u32,
}

impl Workflow for Confession {
    const KIND: &'static str = "encrypted_confession";
    type Output = String;
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<String, Failure> {
        let Confession { secret, run } = &self;
        let step = flow.step_with("step", |cx| async move {
            cx.set("in_step", secret)?;
            Ok(secret.clone())
        });
        let undo =
            |text: String| async move { if text == SECRET { Ok(()) } else { Err(Failure::stop("other")) } };
        assert_eq!(&step.undo(undo).await?, secret);
        flow.context().set("in_code", secret)?;
        flow.context().set_once(&format!("once-{run}"), secret)?;
        let hourly = Calendar::every(1, Unit::Hours).expect("a calendar");
        let ticks = flow.repeat("ticks", hourly.clone(), |tick, cx| async move {
            cx.set("in_tick", format!("{secret} at {tick}"))?;
            cx.set("same_in_tick", secret)?;
            Ok(ControlFlow::<()>::Continue(()))
        });
        ticks.times(13).await?;
        let in_tick: String = flow.context().get("in_tick")?.unwrap_or_default();
        assert!(in_tick.starts_with(SECRET), "{in_tick}");
        let broken =
            flow.repeat("broken", hourly, |_, _| async move { Ok(ControlFlow::Break(secret.clone())) });
        assert_eq!(broken.await?.as_ref(), Some(secret));
        assert_eq!(&flow.signal::<String>("word").await?, secret);
        let asked = flow.continue_if("asked", |text: Option<String>| async move { Ok(text) });
        assert_eq!(&asked.await?, secret);
        let race = (flow.signal::<String>("first"), flow.sleep(days(9)));
        assert!(matches!(flow.select("race", race).await, First2::A(Ok(text)) if text == *secret));
        let child = flow.child("child", Echo { text: secret.clone() }).await?;
        let texts = || (0..6).map(|n| format!("{SECRET} {n}"));
        let branch = flow.branch("echoes").chunk(2).spawn_each("echo", texts(), |text| Echo { text });
        let joined = branch.automerge().reduce(String::new(), |all: String, one: String| all + &one).await?;
        let packed = flow.branch("packed").packed().spawn_each("echo", texts(), |text| Echo { text });
        let packed = packed.automerge().reduce(String::new(), |all: String, one: String| all + &one).await?;
        assert!(joined.len() == packed.len() && child.len() == SECRET.len(), "{joined} {packed}");
        if *run == 1 {
            return flow.continue_as_new(Confession { secret: secret.clone(), run: 2 }).await;
        }
        assert_eq!(flow.context().get::<String>("once-1")?.as_ref(), Some(secret), "carried over");
        Err(Failure::stop("on purpose"))
    }
}

/// Where a text can be read: in the files of a SQLite store, or in the tables of a PostgreSQL one.
async fn readable(store: &crate::common::TestStore, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(dir) = &store._dir {
        for file in std::fs::read_dir(dir.path()).expect("a folder") {
            let path = file.expect("a file").path();
            let bytes = std::fs::read(&path).expect("read");
            for (at, _) in bytes.windows(text.len()).enumerate().filter(|(_, word)| *word == text.as_bytes())
            {
                let around = &bytes[at.saturating_sub(60)..(at + 40).min(bytes.len())];
                let around = String::from_utf8_lossy(around).replace(|c: char| c.is_control(), ".");
                found.push(format!("{}: {around}", path.file_name().expect("a name").display()));
            }
        }
        return found;
    }
    let client = client(&store.url).await;
    let schema = store.url.rsplit("schema=").next().expect("a schema").to_owned();
    let sql = "select table_name::text from information_schema.tables where table_schema = $1";
    let tables: Vec<String> =
        client.query(sql, &[&schema]).await.expect("tables").iter().map(|row| row.get(0)).collect();
    assert!(tables.iter().any(|table| table == "journal"), "{tables:?}");
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    for table in tables {
        let sql = format!("select left(t::text, 200) from {schema}.{table} t where t::text like any ($1)");
        let words = vec![format!("%{text}%"), format!("%{hex}%")];
        let rows = client.query(&sql, &[&words]).await.expect("searched");
        found.extend(rows.iter().map(|row| format!("{table}: {}", row.get::<_, String>(0))));
    }
    found
}

async fn no_payload_of_a_workflow_can_be_read_in_the_store(on: On) {
    let store = on.fresh().await;
    let setup = |engine: Builder| engine.workflow::<Confession>().task::<Echo>().codec(Shifted);
    let lab = Lab::on(&store.url, setup).await;
    let job = lab.submit(Confession { secret: SECRET.into(), run: 1 }).await;
    for _ in 0..2 {
        for name in ["word", "asked"] {
            lab.run().await;
            assert_eq!(lab.state(job).await, State::Waiting, "{name}");
            assert_eq!(readable(&store, SECRET).await, Vec::<String>::new(), "before {name:?}");
            lab.signal(job, name, SECRET).await;
        }
        // Before the job waits for it: the lab would set the clock nine days forward.
        lab.signal(job, "first", SECRET).await;
    }
    lab.run().await;
    let failed = lab.result(job).await.expect_err("it fails").to_string();
    assert_eq!(failed, "the job failed (stopped): on purpose");
    assert_eq!(lab.context::<_, String>(job, "in_step").await.as_deref(), Some(SECRET));
    let engine = lab.engine().await;
    let fork = engine.control("test").fork().before("word").run(job.id()).await.expect("forked");
    lab.run().await;
    let forked = lab.job::<String>(fork);
    assert_eq!(lab.context::<_, String>(forked, "same_in_tick").await.as_deref(), Some(SECRET));
    let kept =
        lab.journal(forked).await.into_iter().filter(|entry| entry.call_kind == CallKind::Context).count();
    assert!(kept < 10, "{kept} values are kept of 13 ticks");
    let branches = engine.inspect().branches(job.id()).await.expect("branches");
    assert!(branches.iter().all(|branch| branch.cursor.as_ref().is_none_or(|cursor| cursor.codec == 78)));
    assert_eq!(readable(&store, SECRET).await, Vec::<String>::new());
}

mod sqlite {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_payload_of_a_workflow_can_be_read_in_the_store() {
        super::no_payload_of_a_workflow_can_be_read_in_the_store(super::On::Sqlite).await;
    }
}

mod postgres {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_payload_of_a_workflow_can_be_read_in_the_store() {
        super::no_payload_of_a_workflow_can_be_read_in_the_store(super::On::Postgres).await;
    }
}
