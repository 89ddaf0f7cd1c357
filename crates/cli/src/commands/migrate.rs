//! `windlass migrate`: shows and changes the version of the store's schema.

use std::process::ExitCode;

use anyhow::{Context, bail};
use windlass::store::{self, SchemaState, is_postgres, postgres, sqlite, sqlite_path};

use crate::{out, program::Program};

/// Migrate the store's schema to this binary's version, or to another
///
/// `worker` and `submit` migrate the store when they open it; use this command to choose the time. Several processes may run it
/// at once.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The version to migrate to; 0 removes everything, jobs included [default: this binary's]
    #[arg(long, value_name = "VERSION", conflicts_with = "status")]
    to: Option<i32>,
    /// Only show the version; the exit code is 1 if it is not this binary's
    #[arg(long)]
    status: bool,
    /// With --to 0: remove all jobs without asking
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    program.need_store("migrate")?;
    let before = schema_state(program).await?;
    if args.status {
        print(&args, program, before, None)?;
        return Ok(if before.version == before.latest { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let target = before.target(args.to)?;
    if target == 0 && before.version > 0 && !args.yes {
        bail!("version 0 removes the schema and all jobs in {}; add --yes to confirm", program.display_url());
    }
    let after = if target == before.version { before } else { migrate(program, target).await? };
    print(&args, program, after, Some(before))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the version of the schema. Creates nothing.
async fn schema_state(program: &Program) -> anyhow::Result<SchemaState> {
    let state = store::schema_state(program.url()).await;
    state.with_context(|| {
        format!("{} cannot be read; check the address, and that it can be reached", program.display_url())
    })
}

async fn migrate(program: &Program, target: i32) -> anyhow::Result<SchemaState> {
    let url = program.url();
    Ok(match sqlite_path(url) {
        Some(path) => sqlite::Sqlite::migrate(&path, Some(target))?,
        None if is_postgres(url) => {
            postgres::Postgres::migrate(&postgres::Options::parse(url)?, Some(target)).await?
        }
        None => bail!("{url} has no schema: it exists only while the program runs"),
    })
}

fn print(
    args: &Args,
    program: &Program,
    state: SchemaState,
    before: Option<SchemaState>,
) -> anyhow::Result<()> {
    if args.json {
        return out::print_json(&state);
    }
    let version =
        |version: i32| if version == 0 { "no schema".to_owned() } else { format!("version {version}") };
    let change = match before {
        Some(before) if before.version != state.version => {
            format!("migrated from {} to {}", version(before.version), version(state.version))
        }
        _ => version(state.version),
    };
    let hint = if state.version == state.latest {
        "this binary's version".to_owned()
    } else if state.version < state.latest {
        format!("this binary needs version {}; run `{} migrate`", state.latest, program.name)
    } else {
        format!("newer than this binary, which knows versions up to {}", state.latest)
    };
    out::print(&format!("{}: {change}; {hint}\n", program.display_url()))
}
