//! For `docs/jobs.md`.

pub use windlass::{
    AnyKind, Time,
    prelude::*,
    runtime::{AttemptInfo, NextLayer},
};

pub type Done = Result<(), Box<dyn std::error::Error>>;

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
pub struct MakeReport {
    pub month: u32,
}

#[derive(Serialize, Deserialize)]
pub struct Report;

impl Task for MakeReport {
    const KIND: &'static str = "report";
    type Output = Report;
    type Error = Failure;

    async fn run(self, _cx: &TaskCx) -> Result<Report, Failure> {
        Ok(Report)
    }
}

pub struct Images;

impl Images {
    pub fn connect() -> Images {
        Images
    }

    pub async fn resize(&self, _image: u64) -> Result<Thumb, std::fmt::Error> {
        Ok(Thumb)
    }

    pub async fn load(&self, _url: &str) -> Result<Vec<u8>, std::fmt::Error> {
        Ok(Vec::new())
    }
}

pub enum ImageError {
    Busy,
    NotAnImage,
    Withdrawn,
}

tokio::task_local! {
    pub static TENANT: String;
}
