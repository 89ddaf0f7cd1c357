//! For `docs/changing-workflows.md`.

pub use windlass::prelude::*;

pub type Done = Result<(), Box<dyn std::error::Error>>;

pub async fn check(_order: u32) -> Result<(), Failure> {
    Ok(())
}

pub async fn ship(_order: u32) -> Result<(), Failure> {
    Ok(())
}

macro_rules! order {
    ($module:ident, $version:literal) => {
        pub mod $module {
            use windlass::prelude::*;

            #[derive(Serialize, Deserialize)]
            pub struct Order;

            impl Workflow for Order {
                const KIND: &'static str = "order";
                const VERSION: i32 = $version;
                type Output = ();
                type Error = Failure;

                async fn run(self, _flow: Flow) -> Result<(), Failure> {
                    Ok(())
                }
            }
        }
    };
}

order!(v1, 1);
order!(v2, 2);
