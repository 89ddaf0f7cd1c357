//! For `docs/guarantees.md`.

pub use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
pub struct Pay {
    pub order: u32,
    pub cents: u64,
}

pub async fn charge(_order: u32, _cents: u64, _idempotency_key: JobId) -> Result<String, Failure> {
    Ok("paid".into())
}
