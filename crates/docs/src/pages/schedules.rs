//! For `docs/schedules.md`.

pub use windlass::{Overlap, prelude::*};

pub type Done = Result<(), Box<dyn std::error::Error>>;

#[derive(Serialize, Deserialize)]
pub struct Report {
    pub of: String,
}

impl Task for Report {
    const KIND: &'static str = "report";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
pub struct Pulse {}

impl Task for Pulse {
    const KIND: &'static str = "pulse";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}
