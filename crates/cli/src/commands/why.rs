//! `windlass why`: the reason a job is where it is.

use std::process::ExitCode;

use anyhow::bail;
use windlass::Why;

use crate::{
    named::{self, Found},
    out,
    place::Place,
};

/// Say why a job is where it is, and what to do about it
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job: its id, its key, or what it is called as a child of a branch
    job: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.reader().await?;
    let (id, packed) = match named::find(&args.job, &engine, place).await? {
        Found::Job(id) => (id, None),
        Found::Packed(item) => (item.block.unwrap_or(item.id), Some(item)),
    };
    let Some(mut why) = engine.why(id).await? else { bail!(place.no_job(id)) };
    if let Some(item) = packed {
        let ended = if item.state.is_final() { format!("It is {}. ", item.state) } else { String::new() };
        why.because = format!("{ended}It is in the block {id}. Of that: {}", why.because);
    }
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
