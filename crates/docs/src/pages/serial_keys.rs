//! For `docs/serial-keys.md`.

pub use windlass::prelude::*;

pub type Done = Result<(), Box<dyn std::error::Error>>;

#[derive(Serialize, Deserialize)]
pub struct Charge {
    pub account: u32,
}

impl Task for Charge {
    const KIND: &'static str = "charge";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}
