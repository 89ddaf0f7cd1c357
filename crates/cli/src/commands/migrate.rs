//! `windlass migrate`: where the store's schema stands, and taking it elsewhere.

use std::process::ExitCode;

use anyhow::{Context, bail};
use windlass::store::{SchemaState, postgres, sqlite};

use crate::{
    out, pg,
    place::{Place, is_postgres, sqlite_path},
};

/// Bring the store's schema to this binary's version, or to another.
///
/// `worker` and `submit` do this by themselves; it is a command for those who want to choose the moment. It is safe to
/// run from several places at once.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The version to go to; 0 removes everything, jobs included [default: this binary's]
    #[arg(long, value_name = "VERSION", conflicts_with = "status")]
    to: Option<i32>,
    /// Only say where the schema stands
    #[arg(long)]
    status: bool,
    /// Remove jobs without asking, where a step down does
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let before = state(place).await?;
    if args.status {
        say(&args, place, before, None)?;
        return Ok(if before.version == before.latest { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let target = before.target(args.to)?;
    if target == 0 && before.version > 0 && !args.yes {
        bail!(
            "version 0 is no schema at all: all jobs in {} would be gone; add --yes if that is meant",
            place.shown()
        );
    }
    let after = if target == before.version { before } else { migrate(place, target).await? };
    say(&args, place, after, Some(before))?;
    Ok(ExitCode::SUCCESS)
}

/// Where the schema stands; reading it makes nothing.
pub(crate) async fn state(place: &Place) -> anyhow::Result<SchemaState> {
    let url = place.url();
    if is_postgres(url) {
        // Parsed by the store first: what it would refuse is refused here, the schema's name above all.
        postgres::Options::parse(url)?;
        let (client, schema) =
            pg::connect(url).await.with_context(|| format!("{} cannot be reached", place.shown()))?;
        return pg::schema_state(&client, &schema).await;
    }
    let Some(path) = sqlite_path(url) else {
        // Memory is always as this binary wants it; anything else is no store, and says so.
        return Ok(windlass::store::open(url, false).await?.inspect().schema().await?);
    };
    let none = SchemaState { version: 0, oldest: 0, ..SchemaState::CURRENT };
    if !path.exists() {
        return Ok(none);
    }
    sqlite::Sqlite::schema_of(&path).with_context(|| format!("{} cannot be read", path.display()))
}

async fn migrate(place: &Place, target: i32) -> anyhow::Result<SchemaState> {
    let url = place.url();
    Ok(match sqlite_path(url) {
        Some(path) => sqlite::Sqlite::migrate(&path, Some(target))?,
        None if is_postgres(url) => {
            postgres::Postgres::migrate(&postgres::Options::parse(url)?, Some(target)).await?
        }
        None => bail!("{url} is gone when the program ends; there is nothing to migrate"),
    })
}

fn say(args: &Args, place: &Place, state: SchemaState, before: Option<SchemaState>) -> anyhow::Result<()> {
    if args.json {
        return out::print_json(&state);
    }
    let version =
        |version: i32| if version == 0 { "no schema".to_owned() } else { format!("version {version}") };
    let moved = match before {
        Some(before) if before.version != state.version => {
            format!("migrated from {} to {}", version(before.version), version(state.version))
        }
        _ => version(state.version),
    };
    let hint = if state.version == state.latest {
        "as this binary wants it".to_owned()
    } else if state.version < state.latest {
        format!("this binary wants version {}; `{} migrate` takes it there", state.latest, place.program)
    } else {
        format!("newer than this binary, which knows version {}", state.latest)
    };
    out::print(&format!("{}: {moved}; {hint}\n", place.shown()))
}
