//! For `docs/codecs.md`.

pub use windlass::{Codec, prelude::*};

pub type Done = Result<(), Box<dyn std::error::Error>>;

#[derive(Serialize, Deserialize)]
pub struct Import;

impl Task for Import {
    const KIND: &'static str = "import";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

#[derive(Clone, Copy)]
pub struct Cipher;

impl Cipher {
    pub fn encrypt(&self, plain: &[u8]) -> Result<Vec<u8>, String> {
        Ok(plain.to_vec())
    }

    pub fn decrypt(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        Ok(bytes.to_vec())
    }
}
