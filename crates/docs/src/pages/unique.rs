//! For `docs/unique.md`.

pub use windlass::{States, prelude::*};

pub type Done = Result<(), Box<dyn std::error::Error>>;

#[derive(Serialize, Deserialize)]
pub struct Index {
    pub document: u64,
}

impl Task for Index {
    const KIND: &'static str = "index";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}
