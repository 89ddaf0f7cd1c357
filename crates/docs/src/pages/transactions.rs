//! For `docs/transactions.md`.

pub use serde_json::json;
pub use uuid::Uuid;
pub use windlass::{
    prelude::*,
    store::{
        rusqlite::{Connection, TransactionBehavior},
        tokio_postgres::Client,
    },
};

pub type Done = Result<(), Box<dyn std::error::Error>>;

#[derive(Serialize, Deserialize)]
pub struct Book {
    pub id: i64,
    pub guest: String,
    pub account: i64,
}

#[derive(Serialize, Deserialize)]
pub struct Confirm {
    pub order: i64,
}

impl Task for Confirm {
    const KIND: &'static str = "confirm";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

pub async fn notify_about(_total: i64) -> Result<(), Failure> {
    Ok(())
}
