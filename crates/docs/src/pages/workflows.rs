//! For `docs/workflows.md`.

pub use windlass::prelude::*;

pub type Done = Result<(), Box<dyn std::error::Error>>;

#[derive(Serialize, Deserialize)]
pub struct Order {
    pub number: u32,
    pub goods: String,
    pub cents: u64,
}

impl Workflow for Order {
    const KIND: &'static str = "order";
    type Output = String;
    type Error = Failure;

    async fn run(self, _flow: Flow) -> Result<String, Failure> {
        Ok(self.goods)
    }
}

#[derive(Serialize, Deserialize)]
pub struct Parcel {
    pub number: u32,
}

#[derive(Clone, Copy)]
pub struct Item {
    pub id: u32,
}

pub async fn charge(_number: u32, _cents: u64, _idempotency_key: &str) -> Result<String, Failure> {
    Ok("payment".into())
}

pub async fn give_back(_payment: &str) -> Result<(), Failure> {
    Ok(())
}

pub async fn pack(_goods: &str) -> Result<(), Failure> {
    Ok(())
}

pub async fn apologise(_number: u32) -> Result<(), Failure> {
    Ok(())
}

pub async fn pick(_item: &Item) -> Result<(), Failure> {
    Ok(())
}

pub mod carrier {
    use super::Status;

    pub async fn status(_parcel: u32) -> Result<Status, std::io::Error> {
        Ok(Status::Delivered)
    }
}

#[derive(PartialEq)]
pub enum Status {
    Delivered,
}

#[derive(Serialize, Deserialize)]
pub struct Render {
    pub page: u32,
}

impl Task for Render {
    const KIND: &'static str = "render";
    type Output = u64;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
        Ok(0)
    }
}

#[derive(Serialize, Deserialize)]
pub struct TellCustomer {
    pub number: u32,
}

impl Task for TellCustomer {
    const KIND: &'static str = "tell_customer";
    type Output = ();
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<(), Failure> {
        Ok(())
    }
}

#[derive(Clone)]
pub struct Farm;

pub async fn render(_flow: &Flow, _farm: &Farm) -> Result<u64, Failure> {
    Ok(0)
}

impl Farm {
    pub async fn shut_down(&self) -> Result<(), Failure> {
        Ok(())
    }
}
