//! For `docs/rate-limits.md`.

pub use windlass::prelude::*;

pub type Done = Result<(), Box<dyn std::error::Error>>;

#[derive(Serialize, Deserialize)]
pub struct Locate {
    pub address: u32,
}

impl Task for Locate {
    const KIND: &'static str = "locate";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
pub struct LocateAll {
    pub addresses: Vec<u32>,
}

impl Task for LocateAll {
    const KIND: &'static str = "locate_all";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}
