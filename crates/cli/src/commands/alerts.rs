//! `windlass alerts`: lists alerts and the rules behind them, mutes and tests them.

use std::{process::ExitCode, time::Duration};

use anyhow::bail;
use windlass::{
    ControlOutcome, Time,
    operate::{
        alerts::{AlertRow, AlertsView, RuleView},
        text,
    },
    store::{AlertMute, AlertState},
};

use crate::{args::Actor, client::Ended, durations, out, outcome, program::Program, table};

/// How long `test` waits for the answer of the receiver.
const PATIENCE: Duration = Duration::from_secs(30);

/// List alerts: what rules find wrong. Mute them, and test whether messages arrive
///
/// `serve` evaluates the rules of its settings every 15 seconds. A rule that names a webhook posts a message when an alert fires, and another
/// when it is resolved.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Only alerts that are not resolved
    #[arg(long)]
    open: bool,
    /// How many alerts to list
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    Mute(Mute),
    Unmute(Unmute),
    Test(Test),
    Rules(Rules),
}

/// Post no messages about a rule, or about one subject of it
#[derive(clap::Args)]
struct Mute {
    /// The rule
    rule: String,
    /// The subject, as `alerts` lists it [default: all of the rule]
    subject: Option<String>,
    /// For how long, e.g. 2h [default: until it is unmuted]
    #[arg(long = "for", value_name = "DURATION", value_parser = durations::parse)]
    span: Option<Duration>,
    #[command(flatten)]
    actor: Actor,
}

/// End a mute: messages that were due meanwhile are posted if they are still true
#[derive(clap::Args)]
struct Unmute {
    /// The rule
    rule: String,
    /// The subject that was muted [default: the mute of all of the rule]
    subject: Option<String>,
    #[command(flatten)]
    actor: Actor,
}

/// Post a test message to the webhook of a rule, and wait for the answer
#[derive(clap::Args)]
struct Test {
    /// The rule
    rule: String,
    #[command(flatten)]
    actor: Actor,
}

/// List the rules: those of the server, or of the settings of this machine
#[derive(clap::Args)]
struct Rules {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    match args.command {
        None => list(&args, program).await,
        Some(Command::Rules(args)) => rules(&args, program).await,
        Some(Command::Test(args)) => test(&args, program).await,
        Some(Command::Mute(args)) => {
            let client = program.client().await?;
            let (rule, subject) = (&args.rule, args.subject.as_deref());
            let muted = client.mute_alerts(rule, subject, args.span, &args.actor).await?;
            let until = match args.span {
                Some(span) => format!("muted for {}", text::span(span)),
                None => "muted until it is unmuted".to_owned(),
            };
            outcome::print(program, "alert rule", &subject_text(rule, subject), &muted, &until)
        }
        Some(Command::Unmute(args)) => {
            let client = program.client().await?;
            let (rule, subject) = (&args.rule, args.subject.as_deref());
            let unmuted = client.unmute_alerts(rule, subject, &args.actor).await?;
            outcome::print(program, "alert rule", &subject_text(rule, subject), &unmuted, "unmuted")
        }
    }
}

fn subject_text(rule: &str, subject: Option<&str>) -> String {
    subject.map_or(rule.to_owned(), |subject| format!("{rule} about {subject}"))
}

async fn list(args: &Args, program: &Program) -> anyhow::Result<ExitCode> {
    let view = program.client().await?.alerts(args.limit, args.open).await?;
    if args.json {
        out::print_json(&view)?;
        return Ok(ExitCode::SUCCESS);
    }
    match view.alerts.is_empty() {
        true => out::print(if args.open { "no alerts\n" } else { "no alerts, and none lately\n" })?,
        false => out::print(&render(&view))?,
    }
    out::print(&render_mutes(&view))?;
    if view.alerts.iter().any(|row| row.is_stale) {
        out::note(&format!(
            "no server has evaluated these rules for a while, so that some alerts may no longer be true; start one with `{} serve`",
            program.name
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn render(view: &AlertsView) -> String {
    let columns = [
        table::column("STATE"),
        table::column("SEVERITY"),
        table::Column { min_width: Some(8), ..table::column("RULE") },
        table::Column { min_width: Some(8), ..table::column("SUBJECT") },
        table::Column { expendable: 1, ..table::column("SINCE") },
        table::Column { min_width: Some(20), ..table::column("WHAT") },
    ];
    let row = |row: &AlertRow| {
        let alert = &row.alert;
        let state = match (&row.muted, row.is_stale) {
            (_, true) => format!("{}, stale", alert.state.name()),
            (Some(_), false) => format!("{}, muted", alert.state.name()),
            (None, false) => alert.state.name().to_owned(),
        };
        let since = match (alert.state, alert.resolved_at) {
            (AlertState::Resolved, Some(at)) => at,
            _ => alert.since,
        };
        vec![
            state,
            alert.severity.name().to_owned(),
            out::plain(&alert.rule),
            out::plain(&alert.subject),
            durations::relative(since, view.now),
            out::plain(&alert.text),
        ]
    };
    table::render(&columns, &view.alerts.iter().map(row).collect::<Vec<_>>(), out::width())
}

/// A line for each mute.
fn render_mutes(view: &AlertsView) -> String {
    let line = |mute: &AlertMute| {
        let AlertMute { rule, subject, until, author, note, .. } = mute;
        let until = until.map_or("until it is unmuted".to_owned(), |at: Time| {
            format!("for {}", durations::format(at - view.now))
        });
        let note = note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        let muted = subject_text(rule, subject.as_deref());
        out::plain(&format!("muted {until}: {muted}, by {author}{note}")) + "\n"
    };
    view.mutes.iter().map(line).collect()
}

async fn rules(args: &Rules, program: &Program) -> anyhow::Result<ExitCode> {
    let rules = program.client().await?.alert_rules().await?;
    if args.json {
        out::print_json(&rules)?;
    } else if rules.is_empty() {
        out::print("no alert rules\n")?;
    } else {
        out::print(&render_rules(&rules))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render_rules(rules: &[RuleView]) -> String {
    let columns = [
        table::Column { min_width: Some(8), ..table::column("RULE") },
        table::column("SEVERITY"),
        table::column("FOR"),
        table::column("WEBHOOK"),
        table::Column { min_width: Some(20), ..table::column("WHEN") },
    ];
    let row = |rule: &RuleView| {
        let fire_after = match rule.for_seconds {
            0 => String::new(),
            seconds => text::span(Duration::from_secs(seconds)),
        };
        let webhook = match (&rule.webhook, rule.muted) {
            (_, true) => "muted".to_owned(),
            (webhook, false) => webhook.clone().unwrap_or_default(),
        };
        vec![
            out::plain(&rule.name),
            rule.severity.name().to_owned(),
            fire_after,
            webhook,
            out::plain(&rule.text),
        ]
    };
    table::render(&columns, &rules.iter().map(row).collect::<Vec<_>>(), out::width())
}

async fn test(args: &Test, program: &Program) -> anyhow::Result<ExitCode> {
    let client = program.client().await?;
    let job = match client.test_alert(&args.rule, &args.actor).await? {
        ControlOutcome::Created(job) => job,
        other => return outcome::print(program, "alert rule", &args.rule, &other, "tested"),
    };
    let Ok(ended) = tokio::time::timeout(PATIENCE, client.result(job)).await else {
        bail!(
            "the message was not delivered within {}; it is posted again for some hours, by whatever server or worker has the webhook \
             in its settings: `{} why {job}` says more",
            durations::format(PATIENCE),
            program.name
        );
    };
    match ended? {
        Ended::Done(answer) => {
            let status = answer["status"].as_u64().unwrap_or_default();
            out::print(&format!(
                "alert rule {}: a test message was delivered (status {status})\n",
                args.rule
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Ended::Error { text, .. } => bail!("the message was not delivered: {text}"),
    }
}
