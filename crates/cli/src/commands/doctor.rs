//! `windlass doctor`: checks an installation: what works, what needs attention, what is broken.

use std::process::ExitCode;

use windlass::operate::doctor::{Finding, Verdict};

use crate::{client::Client, out, program::Program};

/// Check the installation: store, schema, clock, durability, workers, backlog, branches, what is paused or late
///
/// Changes nothing. The exit code is 1 if a check fails; a warning is no failure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let mut findings = Client::doctor(program).await;
    for advice in findings.iter_mut().filter_map(|finding| finding.advice.as_mut()) {
        *advice = program.with_own_name(advice);
    }
    if args.json {
        out::print_json(&findings)?;
    } else {
        out::print(&page(&findings))?;
    }
    let failed = findings.iter().any(|finding| finding.verdict == Verdict::Fail);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn page(findings: &[Finding]) -> String {
    let color = console::Term::stdout().is_term();
    let mut text = String::new();
    for Finding { verdict, what, found, advice, .. } in findings {
        let verdict = match verdict {
            Verdict::Ok => console::style("ok  ").green(),
            Verdict::Warn => console::style("warn").yellow(),
            Verdict::Fail => console::style("FAIL").red().bold(),
        };
        let advice = advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
        let found = out::plain(&(found.clone() + &advice));
        text += &format!("{}  {what:<12}{found}\n", verdict.force_styling(color));
    }
    let counted = |warnings: usize| out::counted(warnings as u64, "warning", "warnings");
    let count = |wanted: Verdict| findings.iter().filter(|finding| finding.verdict == wanted).count();
    text += &match (count(Verdict::Fail), count(Verdict::Warn)) {
        (0, 0) => "no problems\n".to_owned(),
        (0, warnings) => format!("nothing is broken; {}\n", counted(warnings)),
        (failures, warnings) => format!("{failures} broken, {}\n", counted(warnings)),
    };
    text
}
