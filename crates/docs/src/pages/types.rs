//! For `docs/types.md`.

pub use windlass::{FailureClass, prelude::*};

pub type Done = Result<(), Box<dyn std::error::Error>>;

#[derive(Serialize, Deserialize)]
pub struct Album {
    pub photos: u32,
}

impl Task for Album {
    const KIND: &'static str = "album";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}
