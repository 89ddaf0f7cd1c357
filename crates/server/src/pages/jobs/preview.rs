//! The preview of an action on many jobs: which, how many, some of them, and whether it will help.

use windlass::{
    JobId,
    operate::{
        GRACE, JobAction,
        views::{JobRow, Situation},
    },
};

use super::filter::ListFilter;
use crate::{
    error::Error,
    pages::{form::Form, format::thousands, page::PageCall, parts::Tally},
};

/// The most jobs that can be ticked: as many as pages have rows.
pub(super) const MOST_TICKED: usize = 200;
/// How many jobs are shown.
const SHOWN: usize = 8;

/// The drawer with a preview.
pub(super) struct Drawer {
    pub(super) title: String,
    /// The name of the action.
    pub(super) action: &'static str,
    /// Which jobs are meant, in words.
    pub(super) which: String,
    pub(super) tally: Tally,
    pub(super) sample: Vec<JobRow>,
    /// The jobs that were ticked; empty if the filter says which.
    pub(super) jobs: Vec<JobId>,
    /// The page without the preview.
    pub(super) back: String,
    /// What the button says.
    pub(super) button: String,
    /// Whether any job is changed.
    pub(super) changes: bool,
}

/// The action with this name, as far as many jobs can be changed by it.
pub(super) fn action(form: &Form, name: &str) -> Result<(JobAction, &'static str), Error> {
    match name {
        "retry" => Ok((JobAction::Retry, "retry")),
        "pause" => Ok((JobAction::Pause, "pause")),
        "resume" => Ok((JobAction::Resume, "resume")),
        "cancel" => Ok((JobAction::Cancel { grace: GRACE }, "cancel")),
        "priority" => Ok((JobAction::Priority(form.parsed("priority")?.unwrap_or(0)), "priority")),
        other => Err(Error::invalid(
            format!("{other:?} is no action on many jobs"),
            "use retry, pause, resume, cancel or priority",
        )),
    }
}

/// The jobs that were ticked.
pub(super) fn ticked(form: &Form) -> Result<Vec<JobId>, Error> {
    let jobs: Result<Vec<JobId>, _> = form.values("job").map(str::parse).collect();
    let jobs = jobs.map_err(|_| Error::invalid("a job is no id", "tick jobs in the list"))?;
    match jobs.len() {
        0..=MOST_TICKED => Ok(jobs),
        count => Err(Error::invalid(format!("{count} jobs are ticked, and the most are {MOST_TICKED}"), "use a filter")),
    }
}

impl Drawer {
    /// Reads what the action would do.
    pub(super) async fn read(call: &PageCall, list: &ListFilter, name: &str) -> Result<Drawer, Error> {
        if !call.may_act() {
            return Err(crate::access::forbidden("the role viewer may not change jobs", "ask for the role operator"));
        }
        let (job_action, name) = action(&call.query, name)?;
        let jobs = ticked(&call.query)?;
        let situation = call.shared().pages.situation(call.shared()).await?;
        let (matching, at_least, sample, which) = if jobs.is_empty() {
            let bulk = call.operator().control(&call.principal().author).bulk(list.filter(None, call.now)?, job_action);
            let preview = bulk.preview().await?;
            let sample = preview.sample.into_iter().take(SHOWN).collect();
            let sample = JobRow::read(call.operator(), sample, &situation).await?;
            (preview.matching as u64, preview.at_least, sample, list.words())
        } else {
            let rows = JobRow::of_ids(call.operator(), &jobs, &situation).await?;
            let rows: Vec<JobRow> = rows.into_iter().flatten().filter(|row| job_action.applies_to(row.job.state)).collect();
            let matching = rows.len() as u64;
            (matching, false, rows.into_iter().take(SHOWN).collect(), "the jobs that are ticked".to_owned())
        };
        let number = format!("{}{}", thousands(matching), if at_least { "+" } else { "" });
        let noun = if matching == 1 && !at_least { "job" } else { "jobs" };
        let verb = verb(name);
        Ok(Drawer {
            title: format!("{verb} {number} {noun}"),
            action: name,
            which,
            tally: tally(&number, name, jobs.len() as u64, matching, &situation),
            sample,
            back: list.href(),
            button: format!("{verb} {number} {noun}"),
            changes: matching > 0,
            jobs,
        })
    }
}

fn tally(number: &str, name: &str, ticked: u64, matching: u64, situation: &Situation) -> Tally {
    let apply = match name {
        "retry" => "failed or cancelled, and run again with all attempts",
        "cancel" => "have not ended; running attempts have 10 s to end",
        "priority" => "have not ended, and get the new priority",
        _ => "have not ended",
    };
    let workers = situation.workers.iter().filter(|worker| worker.alive).count().to_string();
    let refused = thousands(ticked.saturating_sub(matching));
    match ticked {
        0 => Tally::new(&[(number, apply), (&workers, "live workers")]),
        _ => Tally::new(&[(number, apply), (&refused, "are in other states and stay as they are"), (&workers, "live workers")]),
    }
}

/// The action as the beginning of a sentence.
pub(super) fn verb(name: &str) -> &'static str {
    match name {
        "retry" => "Retry",
        "pause" => "Pause",
        "resume" => "Resume",
        "cancel" => "Cancel",
        _ => "Change the priority of",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_have_names_and_ticked_jobs_are_bounded() {
        let form = |text: &str| Form::parse(text.as_bytes());
        assert_eq!(action(&form("priority=-3"), "priority").ok(), Some((JobAction::Priority(-3), "priority")));
        assert!(action(&form("priority=much"), "priority").is_err() && action(&form(""), "drop").is_err());
        let id = "0199f0c2-6f7a-7000-8000-3d2a2d6b8c91";
        assert_eq!(ticked(&form(&format!("job={id}&job={id}"))).ok().map(|jobs| jobs.len()), Some(2));
        assert!(ticked(&form("job=x")).is_err() && ticked(&form(&format!("job={id}&").repeat(MOST_TICKED + 1))).is_err());
    }
}
