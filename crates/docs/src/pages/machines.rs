//! For `docs/machines.md`.

pub use windlass::{ChildResult, prelude::*};

pub type Done = Result<(), Box<dyn std::error::Error>>;

#[derive(Serialize, Deserialize)]
pub struct Payment {
    pub cents: u64,
}

pub async fn reserve(_order: u32, _idempotency_key: &str) -> Result<(), Failure> {
    Ok(())
}

#[derive(Serialize, Deserialize)]
pub struct Resize {
    pub image: u64,
}

#[derive(Serialize, Deserialize)]
pub struct Thumb;

impl Task for Resize {
    const KIND: &'static str = "resize";
    type Output = Thumb;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<Thumb, Failure> {
        Ok(Thumb)
    }
}

#[derive(Serialize, Deserialize)]
pub struct Money;

impl Money {
    pub fn euros(_cents: u64) -> Money {
        Money
    }
}

pub mod v1 {
    use windlass::prelude::*;

    #[derive(Serialize, Deserialize)]
    pub enum Checkout {
        Start { order: u32, cents: u64 },
        AwaitPayment { order: u32, cents: u64 },
        Ship { order: u32 },
    }

    impl Machine for Checkout {
        const KIND: &'static str = "checkout";
        type Output = String;
        type Error = Failure;

        async fn step(self, _cx: &MachineCx) -> Result<Next<Checkout>, Failure> {
            Ok(Next::stop("no"))
        }
    }
}

pub mod v2 {
    use super::Money;
    use windlass::prelude::*;

    #[derive(Serialize, Deserialize)]
    pub enum Checkout {
        Start { order: u32, price: Money },
        Payment { order: u32, price: Money },
    }

    impl Machine for Checkout {
        const KIND: &'static str = "checkout";
        const VERSION: i32 = 2;
        type Output = String;
        type Error = Failure;

        async fn step(self, _cx: &MachineCx) -> Result<Next<Checkout>, Failure> {
            Ok(Next::stop("no"))
        }
    }
}
