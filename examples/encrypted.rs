//! Payloads that only this program can read, and a key that is changed while jobs are waiting.
//!
//! Run it with `cargo run -p windlass --example encrypted`.

use chacha20poly1305::{
    XChaCha20Poly1305, XNonce,
    aead::{Aead, Generate, KeyInit},
};
use windlass::{Codec, prelude::*};

/// How long a nonce is; it stands before the text that was sealed with it.
const NONCE: usize = 24;

/// One key, under a number of its own.
struct Sealed {
    id: u8,
    cipher: XChaCha20Poly1305,
}

impl Sealed {
    fn new(id: u8, key: [u8; 32]) -> Sealed {
        Sealed { id, cipher: XChaCha20Poly1305::new(&key.into()) }
    }
}

impl Codec for Sealed {
    fn id(&self) -> u8 {
        self.id
    }

    fn encode(&self, plain: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let nonce = XNonce::generate();
        let sealed = self.cipher.encrypt(&nonce, plain).map_err(|error| error.to_string())?;
        Ok(Some([&nonce[..], &sealed[..]].concat()))
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE>().ok_or("it is too short")?;
        let wrong = |_| "another key sealed it, or it was changed".to_owned();
        self.cipher.decrypt(&XNonce::from(*nonce), sealed).map_err(wrong)
    }
}

#[derive(Serialize, Deserialize)]
struct Remind {
    patient: String,
}

impl Task for Remind {
    const KIND: &'static str = "remind";
    type Output = String;
    type Error = AnyError;

    async fn run(self, _cx: &TaskCx) -> Result<String, AnyError> {
        Ok(format!("dear {}, we expect you tomorrow", self.patient))
    }
}

fn remind(patient: &str) -> Remind {
    Remind { patient: patient.into() }
}

/// Keys are here for show; yours come from where you keep secrets.
fn last_year() -> Sealed {
    Sealed::new(10, [1; 32])
}

fn this_year() -> Sealed {
    Sealed::new(11, [2; 32])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite://{}", dir.path().join("work.db").display());

    let before = Engine::open(&url).await?.codec(last_year());
    let waiting = before.submit(remind("Ada")).key("ada").await?;
    let kept = before.inspect().job(waiting.id()).await?.ok_or("pruned")?.input;
    let readable = kept.bytes.windows(3).any(|word| word == b"Ada");
    println!(
        "the store keeps {} bytes of codec {}; the name is in them: {readable}",
        kept.bytes.len(),
        kept.codec
    );

    // First every process learns to read the new key, then it becomes the one that writes. The old one reads on.
    let engine = Engine::open(&url).await?.reads_codec(last_year()).codec(this_year()).task::<Remind>();
    let again = engine.submit(remind("Ada")).key("ada").await?;
    println!("the same submit under the new key is new: {}, differs: {}", again.is_new(), again.differs());

    let engine = engine.start().await?;
    println!("{}", again.result().await?);
    let fresh = engine.submit(remind("Grace")).await?;
    println!("{}", fresh.result().await?);
    for id in [waiting.id(), fresh.id()] {
        let job = engine.inspect().job(id).await?.ok_or("pruned")?;
        println!(
            "input by codec {}, output by codec {:?}",
            job.input.codec,
            job.output.map(|output| output.codec)
        );
    }
    engine.stop().await;

    let stranger = Engine::open(&url).await?;
    if let Err(error) = stranger.result::<String>(fresh.id()).await {
        println!("without the keys: {error}");
    }
    Ok(())
}
