//! `windlass doctor`: checks a set-up and says what is well, what to watch, and what is broken.

mod backlog;
mod branches;
mod postgres;
mod rules;
mod sqlite;

use std::{
    process::ExitCode,
    time::{Duration, SystemTime},
};

use serde::Serialize;
use windlass::{Engine, Time};

use crate::{
    commands::migrate,
    out,
    place::{Place, is_postgres, sqlite_path},
    span,
};

/// Check the set-up: store, schema, clock, durability, workers, backlog, branches, what is paused or late
///
/// Changes nothing. The exit code is 1 if a check fails; a warning is no failure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How a check came out.
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

    /// Notes what a check found, or why it could not be made.
    fn note(&mut self, what: &'static str, check: anyhow::Result<()>) {
        if let Err(error) = check {
            self.fail(what, format!("{error:#}"));
        }
    }

    fn failed(&self) -> bool {
        self.0.iter().any(|check| check.verdict == Verdict::Fail)
    }
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let mut findings = Findings::default();
    examine(&mut findings, place).await;
    if args.json {
        out::print_json(&findings.0)?;
    } else {
        out::print(&page(&findings))?;
    }
    Ok(if findings.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The checks, from the ground up; what stands on something broken is not looked at.
async fn examine(findings: &mut Findings, place: &Place) {
    let schema = match migrate::state(place).await {
        Ok(schema) => schema,
        Err(error) => return findings.fail("store", format!("{error:#}")),
    };
    let path = sqlite_path(place.url());
    if path.as_ref().is_some_and(|path| !path.exists()) {
        let program = &place.program;
        findings.warn(
            "store",
            format!(
                "there is none at {} yet; `{program} submit` or `{program} worker` makes it",
                place.shown()
            ),
        );
        return;
    }
    findings.ok("store", format!("{} answers", place.shown()));
    match (path, is_postgres(place.url())) {
        (Some(path), _) => sqlite::examine(findings, &path),
        (None, true) => postgres::examine(findings, place.url()).await,
        (None, false) => {}
    }
    let wanted = format!("version {}, this binary wants {}", schema.version, schema.latest);
    match schema.check() {
        Ok(()) => findings.ok("schema", wanted),
        Err(error) => return findings.fail("schema", error.to_string()),
    }
    let engine = match place.reader().await {
        Ok(engine) => engine,
        Err(error) => return findings.fail("store", format!("{error:#}")),
    };
    let clock = clock(findings, &engine).await;
    findings.note("clock", clock);
    let backlog = backlog::examine(findings, &engine, place).await;
    findings.note("backlog", backlog);
    let branches = branches::examine(findings, &engine, place).await;
    findings.note("branches", branches);
    let rules = rules::examine(findings, &engine, place).await;
    findings.note("rules", rules);
}

/// How far the store's clock, which judges leases, is from this machine's, which stamps when attempts started.
async fn clock(findings: &mut Findings, engine: &Engine) -> anyhow::Result<()> {
    let before = Time::from_system(SystemTime::now());
    let theirs = engine.inspect().clock().await?;
    let after = Time::from_system(SystemTime::now());
    let skew = if theirs < before { before.since(theirs) } else { theirs.since(after) };
    let found = format!("{} apart from this machine's", span::show(skew));
    if skew < Duration::from_secs(1) {
        findings.ok("clock", found);
    } else {
        findings.warn("clock", format!("{found}; times of attempts will look wrong: set the clocks by NTP"));
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
    let count = |wanted: Verdict| findings.0.iter().filter(|check| check.verdict == wanted).count();
    text += &match (count(Verdict::Fail), count(Verdict::Warn)) {
        (0, 0) => "all is well\n".to_owned(),
        (0, warnings) => format!("nothing is broken; {warnings} to look at\n"),
        (failures, warnings) => format!("{failures} broken, {warnings} to look at\n"),
    };
    text
}
