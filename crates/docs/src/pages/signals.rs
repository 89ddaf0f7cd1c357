//! For `docs/signals.md`.

pub use windlass::prelude::*;

pub type Done = Result<(), Box<dyn std::error::Error>>;

#[derive(Clone, Serialize, Deserialize)]
pub struct Payment {
    pub cents: u64,
}

#[derive(Serialize, Deserialize)]
pub enum Checkout {
    Start { order: u32, cents: u64 },
}

impl Machine for Checkout {
    const KIND: &'static str = "checkout";
    type Output = String;
    type Error = Failure;

    async fn step(self, _cx: &MachineCx) -> Result<Next<Checkout>, Failure> {
        Ok(Next::stop("no"))
    }
}
