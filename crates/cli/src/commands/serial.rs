//! `windlass serial`: lists serial keys and sets their slots.

use std::process::ExitCode;

use windlass::store::{AdminAction, SerialView};

use crate::{args::Actor, out, outcome, program::Program, table};

/// List serial keys that jobs hold or wait for; set how many jobs of a key run at once
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Only this key
    #[arg(long)]
    key: Option<String>,
    /// At most this many
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
    /// Set how many jobs of a key run at once
    Slots(Slots),
}

#[derive(clap::Args)]
struct Slots {
    /// The key
    key: String,
    /// How many jobs at once
    slots: u32,
    #[command(flatten)]
    actor: Actor,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    if let Some(Command::Slots(Slots { key, slots, actor })) = &args.command {
        windlass::model::limits::check_slots(key, Some(*slots))?;
        let client = program.client_or_create().await?;
        let action = AdminAction::Slots { key: key.clone(), slots: *slots };
        let outcome = client.administer(&action, actor).await?;
        return outcome::print(
            program,
            "serial key",
            key,
            &outcome,
            &format!("{} at a time", out::jobs((*slots).into())),
        );
    }
    let limit = args.limit as usize;
    let view = program.client().await?.serial_keys(args.key.as_deref(), limit).await?;
    if args.json {
        out::print_json(&view)?;
    } else if view.keys.is_empty() {
        let what = if args.key.is_some() {
            "no job holds this serial key or waits for it"
        } else {
            "no job holds a serial key or waits for one"
        };
        out::print(&format!("{what}\n"))?;
    } else {
        out::print(&render(&view.keys))?;
        if view.has_more {
            out::note("there may be more; use --limit to see them");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn render(keys: &[SerialView]) -> String {
    let number = |heading| table::Column { align_right: true, ..table::column(heading) };
    let columns = [
        table::Column { min_width: Some(12), ..table::column("KEY") },
        number("SLOTS"),
        number("HELD"),
        number("WAITING"),
    ];
    let rows: Vec<Vec<String>> = keys
        .iter()
        .map(|key| {
            let slots = out::thousands(key.slots.into());
            vec![out::plain(&key.key), slots, out::thousands(key.held), table::capped(key.waiting)]
        })
        .collect();
    table::render(&columns, &rows, out::width())
}
