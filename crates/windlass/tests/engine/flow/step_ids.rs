//! Ids of steps and undos: no two are equal, whatever their names and keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use windlass::{prelude::*, testing::Lab};

use super::{On, on_every_store};

on_every_store!(no_two_steps_or_undos_have_the_same_id);

/// The ids of a job's steps and undos.
static IDS: Mutex<BTreeMap<JobId, Vec<String>>> = Mutex::new(BTreeMap::new());

fn note_id(job: JobId, id: &str) {
    IDS.lock().unwrap_or_else(|e| e.into_inner()).entry(job).or_default().push(id.to_owned());
}

/// Names and keys that are hard to tell apart once they are joined.
const STEPS: [(&str, Option<&str>); 14] = [
    ("charge/eu", None),
    ("charge", Some("eu")),
    ("charge", Some("")),
    ("charge", None),
    ("charge%2Feu", None),
    ("a", Some("b/c")),
    ("a/b", Some("c")),
    ("a", Some("b%2Fc")),
    ("run-2", Some("x")),
    ("run-2/x", None),
    ("run%2D2", Some("x")),
    ("x", None),
    ("~1/x", None),
    ("~1", Some("x")),
];

#[derive(Serialize, Deserialize)]
struct Many {
    run: u32,
}

impl Workflow for Many {
    const KIND: &'static str = "ids_many";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        let id = flow.id();
        for (name, key) in STEPS {
            let step = flow.step_with(name, move |cx| async move {
                note_id(id, cx.step_id());
                Ok(())
            });
            let step = step.undo_with(move |cx, ()| async move {
                note_id(id, &cx.undo_id());
                Ok(())
            });
            match key {
                Some(key) => step.key(key).await?,
                None => step.await?,
            }
        }
        if self.run == 1 {
            return flow.continue_as_new(Many { run: 2 }).await;
        }
        Err(Failure::stop("all is undone"))
    }
}

async fn no_two_steps_or_undos_have_the_same_id(on: On) {
    let store = on.fresh().await;
    let lab = Lab::on(&store.url, |engine| engine.workflow::<Many>()).await;
    let job = lab.submit(Many { run: 1 }).await;
    lab.run().await;
    assert!(lab.result(job).await.is_err());
    let ids = IDS.lock().unwrap_or_else(|e| e.into_inner()).remove(&job.id()).expect("it ran");
    assert_eq!(ids.len(), 3 * STEPS.len(), "the steps of both runs, and the undos of the second");
    let mut unique = BTreeSet::new();
    let twice: Vec<&String> = ids.iter().filter(|id| !unique.insert(*id)).collect();
    assert!(twice.is_empty(), "more than one has {twice:?}");
    assert!(unique.contains(&format!("{}/charge/eu", job.id())), "simple ids are not escaped");
}
