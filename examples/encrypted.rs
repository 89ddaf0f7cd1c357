//! Encrypted payloads, and a change of the key while jobs wait.
//!
//! Run it with `cargo run -p windlass --example encrypted`.

use chacha20poly1305::{
    XChaCha20Poly1305, XNonce,
    aead::{Aead, Generate, KeyInit},
};
use windlass::{Codec, prelude::*};

/// The length of a nonce. The nonce precedes the encrypted text.
const NONCE: usize = 24;

/// Encryption with one key, which has a number.
struct Encrypted {
    id: u8,
    cipher: XChaCha20Poly1305,
}

impl Encrypted {
    fn new(id: u8, key: [u8; 32]) -> Encrypted {
        Encrypted { id, cipher: XChaCha20Poly1305::new(&key.into()) }
    }
}

impl Codec for Encrypted {
    fn id(&self) -> u8 {
        self.id
    }

    fn encode(&self, plain: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let nonce = XNonce::generate();
        let text = self.cipher.encrypt(&nonce, plain).map_err(|error| error.to_string())?;
        Ok(Some([&nonce[..], &text[..]].concat()))
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let (nonce, text) = bytes.split_first_chunk::<NONCE>().ok_or("it is too short")?;
        let wrong = |_| "it was encrypted with another key, or modified".to_owned();
        self.cipher.decrypt(&XNonce::from(*nonce), text).map_err(wrong)
    }
}

#[derive(Serialize, Deserialize)]
struct Remind {
    patient: String,
}

impl Task for Remind {
    const KIND: &'static str = "remind";
    type Output = String;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<String, Failure> {
        Ok(format!("dear {}, we expect you tomorrow", self.patient))
    }
}

fn remind(patient: &str) -> Remind {
    Remind { patient: patient.into() }
}

/// The keys of this example are constants; read yours from where you keep secrets.
fn last_year() -> Encrypted {
    Encrypted::new(10, [1; 32])
}

fn this_year() -> Encrypted {
    Encrypted::new(11, [2; 32])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite://{}", dir.path().join("work.db").display());

    let before = Engine::builder(&url).codec(last_year()).open().await?;
    let waiting = before.submit(remind("Ada")).key("ada").await?;
    let kept = before.inspect().job(waiting.id()).await?.ok_or("pruned")?.input;
    let readable = kept.bytes.windows(3).any(|word| word == b"Ada");
    println!(
        "the store keeps {} bytes of codec {}; the name is in them: {readable}",
        kept.bytes.len(),
        kept.codec
    );

    // First give every process the new key for reading, then let it write with that. The old key stays for reading.
    let engine =
        Engine::builder(&url).reads_codec(last_year()).codec(this_year()).task::<Remind>().open().await?;
    let again = engine.submit(remind("Ada")).key("ada").await?;
    println!("the same submit under the new key is new: {}, differs: {}", again.is_new(), again.differs());

    engine.start().await?;
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

    let other = Engine::open(&url).await?;
    let unread: Handle<Remind> = other.job(fresh.id()).await?;
    if let Err(error) = unread.result().await {
        println!("without the keys: {error}");
    }
    Ok(())
}
