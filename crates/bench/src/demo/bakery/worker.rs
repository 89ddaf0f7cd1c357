//! One worker process of the bakery. It works until its standard input is closed, which it also is when the demo dies.

use std::process::ExitCode;

use anyhow::Context;
use tokio::io::AsyncReadExt;
use windlass::Pool;

use super::{CardService, builder, config, kinds::POOLS};

/// One worker process of the bakery.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long = "at")]
    url: String,
    /// The host that it pretends to run on
    #[arg(long)]
    host: String,
    /// When the demo began, in microseconds since 1970
    #[arg(long)]
    began: i64,
}

impl Args {
    /// The arguments of a process.
    pub(super) fn command_line(url: &str, host: &str, service: CardService) -> Vec<std::ffi::OsString> {
        let began = service.began_micros().to_string();
        ["demo-bakery-worker", "--at", url, "--host", host, "--began", &began].map(Into::into).into()
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    // One that is frozen cannot see that its parent died; the system ends it then.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let logs = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
    logs.with_max_level(tracing_subscriber::filter::LevelFilter::WARN).init();
    let name = format!("{}:{}", args.host, std::process::id());
    let engine = builder(&args.url, CardService::since(args.began)).config(config(name));
    let engine =
        POOLS.iter().fold(engine, |engine, (queue, slots)| engine.queue(*queue, Pool::slots(*slots)));
    let engine = engine.start().await.context("the worker cannot start")?;
    let mut nothing = [0];
    let _ = tokio::io::stdin().read(&mut nothing).await;
    engine.stop().await;
    Ok(ExitCode::SUCCESS)
}
