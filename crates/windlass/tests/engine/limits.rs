//! Limits: each can be set in the URL of the store, and the error that it causes names its setting.

use windlass::{JobError, model::Limits, prelude::*, store::with_limits};

crate::on_both_stores!(every_limit_is_set_in_the_url_and_named_in_its_error);

/// Has an input of some length, and publishes a value of `kept` bytes in its context.
#[derive(Serialize, Deserialize)]
struct Long {
    text: String,
    kept: usize,
}

impl Workflow for Long {
    const KIND: &'static str = "long";
    type Output = ();
    type Error = Failure;

    async fn run(self, flow: Flow) -> Result<(), Failure> {
        flow.context().set("kept", "x".repeat(self.kept))?;
        flow.signal::<()>("end").await
    }
}

/// Uses as much as a limit allows, and a little more if `over`. Returns the error.
async fn reach(engine: &Engine, name: &str, over: bool) -> Result<(), String> {
    let more = usize::from(over);
    let submit = async |text: usize, kept: usize| engine.submit(Long { text: "x".repeat(text), kept }).await;
    match name {
        "payload" => {
            let frame = serde_json::to_string(&Long { text: String::new(), kept: 0 }).expect("JSON").len();
            submit(2_000 - frame + more, 0).await.map(drop).map_err(|error| error.to_string())
        }
        "inbox" => {
            let job = submit(0, 0).await.expect("submitted");
            for _ in 0..2_000 {
                engine.signal(job.id(), "other", ()).await.expect("the inbox has room");
            }
            if !over {
                return Ok(());
            }
            engine.signal(job.id(), "other", ()).await.map(drop).map_err(|error| error.to_string())
        }
        "context" | "step" => {
            // The quotes count, and the value is written together with the signal, which is `null`.
            let most = if name == "step" { 1_994 } else { 1_998 };
            let job = submit(0, most + more).await.expect("submitted");
            if name == "step" || !over {
                engine.signal(job.id(), "end", ()).await.expect("sent");
            }
            job.result().await.map_err(|error| match error {
                JobError::Failed { failure, .. } => failure.message,
                other => other.to_string(),
            })
        }
        other => panic!("the limit {other:?} is new: reach it here"),
    }
}

async fn every_limit_is_set_in_the_url_and_named_in_its_error(url: &str) {
    for name in Limits::NAMES {
        let limited = with_limits(url, [(*name, 2_000)]);
        let engine = Engine::builder(&limited).workflow::<Long>();
        let engine = engine.start().await.expect("started");
        assert_eq!(engine.store().limits().get(name), Some(2_000), "{limited}");
        assert_eq!(reach(&engine, name, false).await, Ok(()), "{name}");
        let error = reach(&engine, name, true).await.expect_err(name);
        for part in ["2000", &Limits::raise_hint(name)] {
            assert!(error.contains(part), "the error of the limit {name} lacks {part:?}: {error:?}");
        }
        engine.stop().await;
    }
}
