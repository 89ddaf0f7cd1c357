//! `windlass why`: the reason a job is where it is.

use std::process::ExitCode;

use anyhow::bail;
use windlass::{JobId, Why};

use crate::{out, place::Place};

/// Say why a job is where it is, and what to do about it
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job
    job: JobId,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.reader().await?;
    let Some(mut why) = engine.why(args.job).await? else { bail!(place.no_job(args.job)) };
    // The commands are called as this program is.
    why.hint = place.said(&why.hint);
    if args.json {
        out::print_json(&why)?;
    } else {
        out::print(&page(&why))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn page(why: &Why) -> String {
    let mut page = format!("{}\n{}\n", out::plain(&why.because), out::plain(&why.hint));
    for also in &why.also {
        page += &format!("Also: {}\n", out::plain(also));
    }
    page
}
