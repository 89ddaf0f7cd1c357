//! `windlass why`: explains why a job is in its state.

use std::process::ExitCode;

use anyhow::bail;
use windlass::{Why, operate::Found};

use crate::{out, program::Program, resolve};

/// Explain why a job is in its state, and what to do about it
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job: its id, kind/key, its key, or its name as a child of a branch
    job: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let client = program.client().await?;
    let (id, packed) = match resolve::job_or_item(&args.job, &client, program).await? {
        Found::Job(id) => (id, None),
        Found::Packed(item) => (item.block.unwrap_or(item.id), Some(item)),
    };
    let Some(mut why) = client.why(id).await? else { bail!(program.no_job(id)) };
    if let Some(item) = packed {
        let ended = if item.state.is_final() { format!("It is {}. ", item.state) } else { String::new() };
        why.because = format!("{ended}It is packed into the block {id}. About the block: {}", why.because);
    }
    why.hint = program.with_own_name(&why.hint);
    if args.json {
        out::print_json(&why)?;
    } else {
        out::print(&page(&why))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn page(why: &Why) -> String {
    let mut page = format!("{}\n", out::plain(&why.because));
    if let Some(child) = &why.child {
        page += &format!("{}\n", out::plain(&child.to_text()));
    }
    page += &format!("{}\n", out::plain(&why.hint));
    for also in &why.also {
        page += &format!("Also: {}\n", out::plain(also));
    }
    page
}
