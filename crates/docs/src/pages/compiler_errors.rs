//! For `docs/compiler-errors.md`.

pub use std::sync::Mutex;

pub use windlass::prelude::*;

pub struct Order {
    pub cents: i64,
    pub customer: String,
}

#[derive(Serialize, Deserialize)]
pub struct Letter {
    pub to: u32,
    pub text: String,
}

impl Task for Letter {
    const KIND: &'static str = "letter";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

pub async fn pay(_cents: i64) -> Result<i64, Failure> {
    Ok(1)
}

pub async fn refund(_cents: i64, _payment: i64) -> Result<(), Failure> {
    Ok(())
}

pub async fn send(_to: String) -> Result<(), Failure> {
    Ok(())
}

pub async fn tell(_to: &str, _payment: i64) -> Result<(), Failure> {
    Ok(())
}

pub async fn go(_way: u32) -> Result<(), Failure> {
    Ok(())
}
