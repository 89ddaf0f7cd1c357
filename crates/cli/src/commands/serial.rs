//! `windlass serial`: the keys under which jobs run one after the other.

use std::process::ExitCode;

use windlass::store::SerialView;

use crate::{author::Author, out, place::Place, rule, table};

/// List serial keys that are held or waited for; say how many jobs of a key run at once
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Only this key
    #[arg(long)]
    key: Option<String>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Let so many jobs of a key run at once, from now on
    Slots(Slots),
}

#[derive(clap::Args)]
struct Slots {
    /// The key
    key: String,
    /// How many
    slots: u32,
    #[command(flatten)]
    author: Author,
}

/// How far the store counts who waits for a key.
const CAP: u64 = 10_000;

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    if let Some(Command::Slots(Slots { key, slots, author })) = &args.command {
        windlass::model::limits::check_slots(key, Some(*slots))?;
        let engine = place.engine().await?;
        let did = author.control(&engine).set_slots(key, *slots).await?;
        return rule::said(
            place,
            "serial key",
            key,
            &did,
            &format!("{} at a time", out::jobs((*slots).into())),
        );
    }
    let limit = args.limit as usize;
    let keys = place.reader().await?.inspect().serial_keys(args.key.as_deref(), limit).await?;
    if args.json {
        out::print_json(&keys)?;
    } else if keys.is_empty() {
        let what = if args.key.is_some() {
            "nobody holds this serial key or waits for it"
        } else {
            "no serial key is held or waited for"
        };
        out::print(&format!("{what}\n"))?;
    } else {
        out::print(&set(&keys))?;
        if keys.len() == limit {
            out::note("there may be more; --limit shows them");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn set(keys: &[SerialView]) -> String {
    let number = |head| table::Column { right: true, ..table::column(head) };
    let columns = [
        table::Column { least: Some(12), ..table::column("KEY") },
        number("SLOTS"),
        number("HELD"),
        number("WAITING"),
    ];
    let rows: Vec<Vec<String>> = keys
        .iter()
        .map(|key| {
            let slots = out::thousands(key.slots.into());
            vec![out::plain(&key.key), slots, out::thousands(key.held), table::capped(key.waiting, CAP)]
        })
        .collect();
    table::set(&columns, &rows, out::width())
}
