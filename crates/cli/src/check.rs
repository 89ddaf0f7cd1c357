//! `windlass check`: would this build break workflows that are under way?

use std::{process::ExitCode, sync::atomic::Ordering};

use serde_json::{Value, json};
use windlass::{Broken, Checked};

use crate::{
    out,
    place::Place,
    progress::Progress,
    stop::{self, Stop},
};

/// Replay every open workflow against this build, and list those that it would break
///
/// To be run from the new build before it is deployed. It reads the journal of every workflow that has not ended, runs
/// the code of this program over it, and writes nothing; no step is run. The exit code is 1 if any would break.
///
/// Workflows are code, so only the program that has it can check it: the stock binary knows the stock kinds alone. A program
/// with workflows of its own gets this command by `windlass_cli::run(engine)`; see examples/commands.rs.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only workflows of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, place: &Place) -> anyhow::Result<ExitCode> {
    let engine = place.knower().await?;
    let mut check = engine.check();
    if let Some(kind) = args.kind {
        check = check.kind(kind);
    }
    let told = Stop::flag()?;
    let mut progress = Progress::new(None);
    let seen = |checked: &Checked| {
        let broken = format!("replayed, {} would break", out::thousands(checked.broken.len() as u64));
        progress.at(checked.jobs as u64, &broken);
        !told.load(Ordering::Relaxed)
    };
    let checked = check.run(seen).await;
    progress.close();
    let checked = checked?;
    if args.json {
        out::print_json(&answer(&checked))?;
    } else {
        out::print(&page(&checked))?;
    }
    Ok(match &checked {
        Checked { cut_short: true, .. } => {
            out::note("ended on the way: not all were replayed");
            ExitCode::from(stop::INTERRUPTED)
        }
        Checked { broken, .. } if broken.is_empty() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn answer(checked: &Checked) -> Value {
    let Checked { jobs, calls, broken, skipping, unserved, cut_short } = checked;
    let told = |broken: &Broken| {
        json!({
            "job": broken.job, "kind": broken.kind.kind, "version": broken.kind.version, "key": broken.key,
            "why": broken.why,
        })
    };
    json!({
        "jobs": jobs, "entries": calls, "broken": broken.iter().map(told).collect::<Vec<Value>>(),
        "skipping": skipping, "unserved": unserved, "cut_short": cut_short,
    })
}

fn page(checked: &Checked) -> String {
    let workflows = |count: usize| match count {
        1 => "1 open workflow".to_owned(),
        count => format!("{} open workflows", out::thousands(count as u64)),
    };
    let mut page = format!(
        "{} replayed, {} entries in their journals: ",
        workflows(checked.jobs),
        out::thousands(checked.calls as u64)
    );
    page += &match checked.broken.len() {
        0 => "none would break\n".to_owned(),
        broken => format!("{} would break\n", out::thousands(broken as u64)),
    };
    for Broken { job, kind, key, why } in &checked.broken {
        let key = key.as_ref().map(|key| format!(", key {}", out::plain(key))).unwrap_or_default();
        page += &format!("\njob {job}, {} version {}{key}\n", out::plain(&kind.kind), kind.version);
        for line in format!("{}: {}", why.class, why.message).lines() {
            page += &format!("  {}\n", out::plain(line));
        }
    }
    if !checked.broken.is_empty() {
        page.push('\n');
    }
    if checked.skipping > 0 {
        page += &format!(
            "{} what this build no longer calls, which is passed over\n",
            match checked.skipping {
                1 => "1 has recorded".to_owned(),
                many => format!("{} have recorded", out::thousands(many as u64)),
            }
        );
    }
    if checked.unserved > 0 {
        page += &format!(
            "{} of a version that this build does not serve: not replayed\n",
            match checked.unserved {
                1 => "1 is".to_owned(),
                many => format!("{} are", out::thousands(many as u64)),
            }
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use windlass::{Failure, model::KindVersion};

    use super::*;

    #[test]
    fn a_report_names_jobs_and_what_would_happen_to_them() {
        let why =
            Failure::stop("its journal says…\n  recorded:  step at a.rs:1\n  attempted: sleep at a.rs:2")
                .class("diverged");
        let job: windlass::JobId = "0199f0c2-6f7a-7000-8000-3d2a2d6b8c91".parse().expect("an id");
        let kind = KindVersion { kind: "order".into(), version: 2 };
        let broken = vec![Broken { job, kind, key: Some("o-7".into()), why }];
        let checked = Checked { jobs: 1_200, calls: 9, broken, skipping: 1, unserved: 2, cut_short: false };
        let expected = "1,200 open workflows replayed, 9 entries in their journals: 1 would break\n\n\
            job 0199f0c2-6f7a-7000-8000-3d2a2d6b8c91, order version 2, key o-7\n  diverged: its journal says…\n    \
            recorded:  step at a.rs:1\n    attempted: sleep at a.rs:2\n\n\
            1 has recorded what this build no longer calls, which is passed over\n\
            2 are of a version that this build does not serve: not replayed\n";
        assert_eq!(page(&checked), expected);
    }
}
