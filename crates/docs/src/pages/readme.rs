//! For `README.md`.

pub use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
pub struct Order;

#[derive(Serialize, Deserialize)]
pub struct Approval;

#[derive(Serialize, Deserialize)]
pub struct Customer;

#[derive(Serialize, Deserialize)]
pub struct Letter {
    pub customer: Customer,
}

impl Task for Letter {
    const KIND: &'static str = "letter";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        Ok(1)
    }
}

pub async fn pay(_order: &Order) -> Result<String, Failure> {
    Ok("payment".into())
}

pub async fn refund(_payment: String) -> Result<(), Failure> {
    Ok(())
}

pub async fn book(_tx: &Tx, _payment: &str, _approval: &Approval) -> Result<(), Failure> {
    Ok(())
}
