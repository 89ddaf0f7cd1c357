//! For `docs/branches.md`.

pub use windlass::prelude::*;

pub type Done = Result<(), Box<dyn std::error::Error>>;

macro_rules! task {
    ($name:ident { $field:ident }) => {
        #[derive(Serialize, Deserialize)]
        pub struct $name {
            pub $field: u64,
        }

        impl Task for $name {
            const KIND: &'static str = stringify!($name);
            type Output = u64;
            type Error = Failure;

            async fn run(self, _cx: &TaskCx) -> Result<u64, Failure> {
                Ok(self.$field)
            }
        }
    };
}

task!(Cover { of });
task!(Thumbnail { picture });
task!(Caption { picture });
task!(Checksum { tile });

pub fn thumbnail(picture: u64) -> Thumbnail {
    Thumbnail { picture }
}

pub fn caption(picture: u64) -> Caption {
    Caption { picture }
}

pub async fn tell_the_editor() -> Result<(), Failure> {
    Ok(())
}
