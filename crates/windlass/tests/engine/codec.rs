//! Codecs: what the store keeps is encoded, and what programs receive is not.

use std::sync::atomic::{AtomicU8, Ordering};

use windlass::{Builder, Codec, Error, Reason, codec, codec::Deflate, prelude::*, store::Job};

crate::on_both_stores!(
    payloads_are_encoded_in_the_store_and_decoded_for_programs,
    an_encryption_key_is_changed_without_rewriting_rows,
    without_its_codec_a_job_fails_as_undecodable,
    a_repeated_submit_is_recognised_although_its_nonce_differs,
    large_payloads_are_compressed_and_limited_by_their_compressed_size,
    errors_of_a_codec_reach_the_caller,
    two_codecs_with_one_number_are_refused,
);

/// A toy cipher: a nonce that is new each time, then the key, then the text, both shifted.
struct ToyCipher {
    id: u8,
    key: u8,
}

static NONCE: AtomicU8 = AtomicU8::new(1);

impl Codec for ToyCipher {
    fn id(&self) -> u8 {
        self.id
    }

    fn encode(&self, plain: &[u8]) -> Result<Option<Vec<u8>>, String> {
        if plain.windows(6).any(|word| word == b"secret") {
            return Err("there are things one does not write down".into());
        }
        let nonce = NONCE.fetch_add(1, Ordering::Relaxed);
        let shift = |byte: &u8| byte.wrapping_add(nonce).wrapping_add(self.key);
        Ok(Some([nonce].into_iter().chain([self.key].iter().chain(plain).map(shift)).collect()))
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let (nonce, text) = bytes.split_first().ok_or("it is empty")?;
        let text: Vec<u8> =
            text.iter().map(|byte| byte.wrapping_sub(*nonce).wrapping_sub(self.key)).collect();
        match text.split_first() {
            Some((key, plain)) if *key == self.key => Ok(plain.to_vec()),
            _ => Err("it was encrypted with another key".into()),
        }
    }
}

/// Returns `text`, repeated.
#[derive(Serialize, Deserialize, Clone)]
struct Echo {
    text: String,
    times: usize,
}

impl Task for Echo {
    const KIND: &'static str = "echo";
    type Output = String;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<String, Failure> {
        Ok(self.text.repeat(self.times))
    }
}

fn echo(text: &str) -> Echo {
    Echo { text: text.into(), times: 1 }
}

fn engine(url: &str) -> Builder {
    Engine::builder(url).task::<Echo>()
}

async fn view(engine: &Engine, id: JobId) -> Job {
    engine.inspect().job(id).await.expect("read").expect("the job exists")
}

/// The codecs of a job's input and output.
async fn codecs(engine: &Engine, id: JobId) -> (u8, u8) {
    let job = view(engine, id).await;
    (job.input.codec, job.output.expect("an output").codec)
}

async fn payloads_are_encoded_in_the_store_and_decoded_for_programs(url: &str) {
    let engine = engine(url).codec(ToyCipher { id: 10, key: 7 }).start().await.expect("started");
    let one = engine.submit(echo("hello")).await.expect("submitted");
    assert_eq!(one.result().await.expect("done"), "hello");
    let many = engine.submit_all([echo("a"), echo("b")]).await.expect("submitted");
    assert_eq!(engine.result::<String>(many[1].id().expect("submitted")).await.expect("done"), "b");
    let json = serde_json::json!({"text": "by name", "times": 1});
    let named = engine.submit_json("echo", 1, json).await.expect("submitted");
    assert_eq!(named.result().await.expect("done"), "by name");
    for id in [one.id(), many[0].id().expect("submitted"), many[1].id().expect("submitted"), named.id()] {
        engine.result::<String>(id).await.expect("done");
        assert_eq!(codecs(&engine, id).await, (10, 10));
    }
    let kept = view(&engine, one.id()).await;
    let output = kept.output.expect("an output");
    for payload in [&kept.input, &output] {
        assert!(!payload.bytes.windows(5).any(|word| word == b"hello"), "it cannot be read in the store");
    }
    assert_eq!(engine.decode(&output).expect("decoded"), b"\"hello\"");

    let elsewhere = Engine::builder(url).reads_codec(ToyCipher { id: 10, key: 7 });
    let elsewhere = elsewhere.open().await.expect("opened");
    assert_eq!(elsewhere.result::<String>(one.id()).await.expect("done"), "hello");
    engine.stop().await;
}

async fn an_encryption_key_is_changed_without_rewriting_rows(url: &str) {
    let before = engine(url).codec(ToyCipher { id: 10, key: 1 }).open().await.expect("opened");
    let waiting = before.submit(echo("old")).await.expect("submitted");
    let plain = engine(url).open().await.expect("opened");
    let plain = plain.submit(echo("older still")).await.expect("submitted");

    let after = engine(url).reads_codec(ToyCipher { id: 10, key: 1 }).codec(ToyCipher { id: 11, key: 2 });
    let after = after.start().await.expect("started");
    let new = after.submit(echo("new")).await.expect("submitted");
    assert_eq!(after.result::<String>(waiting.id()).await.expect("done"), "old");
    assert_eq!(after.result::<String>(plain.id()).await.expect("done"), "older still");
    assert_eq!(new.result().await.expect("done"), "new");
    assert_eq!(codecs(&after, waiting.id()).await, (10, 11));
    assert_eq!(codecs(&after, plain.id()).await, (0, 11));
    assert_eq!(codecs(&after, new.id()).await, (11, 11));
    after.stop().await;
}

async fn without_its_codec_a_job_fails_as_undecodable(url: &str) {
    let with = engine(url).codec(ToyCipher { id: 10, key: 1 }).open().await.expect("opened");
    let job = with.submit(echo("hello")).await.expect("submitted");
    let without = engine(url).start().await.expect("started");
    let error = job.result().await.expect_err("failed");
    assert!(matches!(error, JobError::Failed { reason: Reason::Undecodable, .. }), "{error}");
    assert!(error.to_string().contains("written by codec 10, which this engine does not have"), "{error}");
    assert_eq!(view(&with, job.id()).await.summary.attempts, 0, "no attempt is counted");
    without.stop().await;

    with.start().await.expect("started");
    let done = with.submit(echo("hello")).await.expect("submitted");
    done.result().await.expect("done");
    let error = without.result::<String>(done.id()).await.expect_err("unreadable");
    assert!(matches!(error, JobError::Unreadable { source: codec::Error::Missing(10), .. }), "{error}");
    let wrong = Engine::builder(url).reads_codec(ToyCipher { id: 10, key: 9 });
    let wrong = wrong.open().await.expect("opened");
    let error = wrong.result::<String>(done.id()).await.expect_err("unreadable").to_string();
    assert!(error.contains("codec 10 could not read it (it was encrypted with another key)"), "{error}");
    with.stop().await;
}

async fn a_repeated_submit_is_recognised_although_its_nonce_differs(url: &str) {
    let old = engine(url).codec(ToyCipher { id: 10, key: 1 }).open().await.expect("opened");
    let id = old.new_id();
    assert!(old.submit(echo("once")).id(id).await.expect("submitted").is_new());
    assert!(!old.submit(echo("once")).id(id).await.expect("repeated").is_new());
    assert!(matches!(old.submit(echo("twice")).id(id).await.err(), Some(Error::IdTaken(_))));
    assert!(old.submit(echo("once")).key("k").await.expect("submitted").is_new());

    let new = engine(url).codec(ToyCipher { id: 11, key: 2 }).reads_codec(ToyCipher { id: 10, key: 1 });
    let new = new.open().await.expect("opened");
    let again = new.submit(echo("once")).key("k").await.expect("submitted");
    assert!(!again.is_new() && !again.differs(), "also after the key has changed");
    assert!(new.submit(echo("other")).key("k").await.expect("submitted").differs());
}

async fn large_payloads_are_compressed_and_limited_by_their_compressed_size(url: &str) {
    let engine = engine(url).codec(Deflate { over: 200 }).start().await.expect("started");
    let small = engine.submit(echo("small")).await.expect("submitted");
    let grows = Echo { text: "0123456789".into(), times: 300_000 };
    let grows = engine.submit(grows).await.expect("submitted");
    let large = engine.submit(echo(&"lots of text. ".repeat(300_000))).await.expect("4 MB fit when packed");
    assert_eq!(small.result().await.expect("done"), "small");
    assert_eq!(grows.result().await.expect("done").len(), 3_000_000);
    assert_eq!(large.result().await.expect("done").len(), 14 * 300_000);
    assert_eq!(codecs(&engine, small.id()).await, (0, 0));
    assert_eq!(codecs(&engine, grows.id()).await, (0, 1));
    assert_eq!(codecs(&engine, large.id()).await, (1, 1));
    assert!(view(&engine, large.id()).await.input.bytes.len() < 100_000);

    let anyone = Engine::open(url).await.expect("opened");
    assert_eq!(anyone.result::<String>(large.id()).await.expect("done").len(), 14 * 300_000);
    let sealed = Engine::builder(url).codec(ToyCipher { id: 10, key: 1 }).open().await.expect("opened");
    let error = sealed.submit(echo(&"x".repeat((1 << 20) - 30))).await.map(|_| ());
    assert!(error.is_ok(), "{error:?}");
    let error = sealed.submit(echo(&"x".repeat(1 << 20))).await.expect_err("too large").to_string();
    assert!(error.contains("more than the 1048576 allowed"), "{error}");
    engine.stop().await;
}

async fn errors_of_a_codec_reach_the_caller(url: &str) {
    let engine = engine(url).codec(ToyCipher { id: 10, key: 1 }).start().await.expect("started");
    let error = engine.submit(echo("a secret")).await.expect_err("refused");
    assert!(matches!(error, Error::Codec { .. }) && !error.is_retryable());
    let text = "the input of a \"echo\" job cannot be encoded: codec 10 could not write it (there are things";
    assert!(error.to_string().contains(text), "{error}");
    let error = engine.submit_all([echo("fine"), echo("a secret")]).await.expect_err("refused");
    assert!(matches!(error, Error::Codec { .. }), "{error}");

    // The input does not contain the word; the output does.
    let grows = Echo { text: "ret sec".into(), times: 2 };
    let error = engine.submit(grows).await.expect("submitted").result().await.expect_err("refused");
    assert!(matches!(error, JobError::Failed { reason: Reason::Refused, .. }), "{error}");
    assert!(error.to_string().contains("the output cannot be written: codec 10"), "{error}");
    engine.stop().await;

    let other = Engine::builder(url).codec(ToyCipher { id: 10, key: 2 }).open().await.expect("opened");
    let damaged = other.submit(echo("hello")).await.expect("submitted");
    engine.start().await.expect("started again");
    let error = engine.result::<String>(damaged.id()).await.expect_err("another key");
    assert!(matches!(error, JobError::Failed { reason: Reason::Undecodable, .. }), "{error}");
    assert_eq!(view(&engine, damaged.id()).await.summary.attempts, 0);
    engine.stop().await;
}

async fn two_codecs_with_one_number_are_refused(url: &str) {
    let clash = || engine(url).codec(ToyCipher { id: 10, key: 1 }).reads_codec(ToyCipher { id: 10, key: 2 });
    for refused in [clash().open().await.err(), clash().start().await.err()] {
        let error = refused.expect("refused");
        assert!(matches!(error, Error::Setup(_)), "{error:?}");
        assert!(error.to_string().contains("two codecs have the number 10"), "{error}");
    }
    let own = engine(url).codec(ToyCipher { id: 1, key: 1 }).start().await.err().expect("refused");
    assert!(own.to_string().contains("choose one from 10 to 255"), "{own}");
}
