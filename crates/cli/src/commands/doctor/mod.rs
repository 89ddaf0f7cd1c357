//! `windlass doctor`: checks an installation: what works, what needs attention, what is broken.

mod backlog;
mod branches;
mod flow_control;
mod postgres;
mod sqlite;

use std::{
    process::ExitCode,
    time::{Duration, SystemTime},
};

use serde::Serialize;
use windlass::{Engine, Time};

use crate::{
    commands::migrate,
    durations, out,
    program::{Program, is_postgres, sqlite_path},
};

/// Check the installation: store, schema, clock, durability, workers, backlog, branches, what is paused or late
///
/// Changes nothing. The exit code is 1 if a check fails; a warning is no failure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One check.
#[derive(Serialize)]
struct Check {
    verdict: Verdict,
    what: &'static str,
    found: String,
}

/// All checks so far.
#[derive(Default)]
struct Findings(Vec<Check>);

impl Findings {
    fn ok(&mut self, what: &'static str, found: impl Into<String>) {
        self.0.push(Check { verdict: Verdict::Ok, what, found: found.into() });
    }

    fn warn(&mut self, what: &'static str, found: impl Into<String>) {
        self.0.push(Check { verdict: Verdict::Warn, what, found: found.into() });
    }

    fn fail(&mut self, what: &'static str, found: impl Into<String>) {
        self.0.push(Check { verdict: Verdict::Fail, what, found: found.into() });
    }

    /// Adds a failure if a check could not be made.
    fn add_error(&mut self, what: &'static str, check: anyhow::Result<()>) {
        if let Err(error) = check {
            self.fail(what, format!("{error:#}"));
        }
    }

    fn failed(&self) -> bool {
        self.0.iter().any(|check| check.verdict == Verdict::Fail)
    }
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let mut findings = Findings::default();
    examine(&mut findings, program).await;
    if args.json {
        out::print_json(&findings.0)?;
    } else {
        out::print(&page(&findings))?;
    }
    Ok(if findings.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs the checks, from the store upward; a check that depends on a failed one is skipped.
async fn examine(findings: &mut Findings, program: &Program) {
    let schema = match migrate::schema_state(program).await {
        Ok(schema) => schema,
        Err(error) => return findings.fail("store", format!("{error:#}")),
    };
    let path = sqlite_path(program.url());
    if path.as_ref().is_some_and(|path| !path.exists()) {
        let name = &program.name;
        findings.warn(
            "store",
            format!(
                "there is none at {} yet; `{name} submit` or `{name} worker` creates it",
                program.display_url()
            ),
        );
        return;
    }
    findings.ok("store", format!("{} is reachable", program.display_url()));
    match (path, is_postgres(program.url())) {
        (Some(path), _) => sqlite::examine(findings, &path),
        (None, true) => postgres::examine(findings, program.url()).await,
        (None, false) => {}
    }
    let versions = format!("version {}, this binary needs {}", schema.version, schema.latest);
    match schema.check() {
        Ok(()) => findings.ok("schema", versions),
        Err(error) => return findings.fail("schema", error.to_string()),
    }
    let engine = match program.reader().await {
        Ok(engine) => engine,
        Err(error) => return findings.fail("store", format!("{error:#}")),
    };
    let clock = clock(findings, &engine).await;
    findings.add_error("clock", clock);
    let backlog = backlog::examine(findings, &engine, program).await;
    findings.add_error("backlog", backlog);
    let branches = branches::examine(findings, &engine, program).await;
    findings.add_error("branches", branches);
    let flow_control = flow_control::examine(findings, &engine, program).await;
    findings.add_error("flow control", flow_control);
}

/// Compares the store's clock, which leases use, with this machine's, which records when attempts start.
async fn clock(findings: &mut Findings, engine: &Engine) -> anyhow::Result<()> {
    let before = Time::from_system(SystemTime::now());
    let store_time = engine.inspect().clock().await?;
    let after = Time::from_system(SystemTime::now());
    let skew = if store_time < before { before.since(store_time) } else { store_time.since(after) };
    let found = format!("{} from this machine's clock", durations::format(skew));
    if skew < Duration::from_secs(1) {
        findings.ok("clock", found);
    } else {
        findings.warn(
            "clock",
            format!("{found}; recorded times of attempts are off by that; synchronize the clocks with NTP"),
        );
    }
    Ok(())
}

fn page(findings: &Findings) -> String {
    let color = console::Term::stdout().is_term();
    let mut text = String::new();
    for Check { verdict, what, found } in &findings.0 {
        let verdict = match verdict {
            Verdict::Ok => console::style("ok  ").green(),
            Verdict::Warn => console::style("warn").yellow(),
            Verdict::Fail => console::style("FAIL").red().bold(),
        };
        text += &format!("{}  {what:<12}{}\n", verdict.force_styling(color), out::plain(found));
    }
    let counted = |warnings: usize| out::counted(warnings as u64, "warning", "warnings");
    let count = |wanted: Verdict| findings.0.iter().filter(|check| check.verdict == wanted).count();
    text += &match (count(Verdict::Fail), count(Verdict::Warn)) {
        (0, 0) => "no problems\n".to_owned(),
        (0, warnings) => format!("nothing is broken; {}\n", counted(warnings)),
        (failures, warnings) => format!("{failures} broken, {}\n", counted(warnings)),
    };
    text
}
