//! Failures: what broke, whether it is new, and whether a retry would help.

use std::sync::Arc;

use askama::Template;
use windlass::operate::views::{FailureGroup, Failures};

use super::{
    charts::Spark,
    form::url,
    format::{When, counted, thousands},
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    page::{PageCall, html},
    parts::{Blank, Tone},
};
use crate::error::Error;

/// How many groups are shown.
const SHOWN: usize = 40;

#[derive(Template)]
#[template(path = "failures.html")]
struct FailuresPage {
    frame: Frame,
    failures: Arc<Failures>,
    blank: Option<Blank>,
}

impl FailuresPage {
    fn groups(&self) -> impl Iterator<Item = &FailureGroup> {
        self.failures.groups.iter().take(SHOWN)
    }

    fn ago(&self, at: &windlass::Time) -> When {
        self.frame.clock().ago(*at)
    }

    fn count(&self, count: &u64) -> String {
        thousands(*count)
    }

    fn spark(&self, group: &FailureGroup) -> Spark {
        let values = group.hours.iter().map(|count| f64::from(*count)).collect();
        let day: u64 = group.hours.iter().map(|count| u64::from(*count)).sum();
        Spark { tone: Tone::Bad, values, sentence: format!("{} in 24 hours, by hour", thousands(day)) }
    }

    fn href(&self, group: &FailureGroup) -> String {
        let state = if group.cancelled == group.count { "cancelled" } else { "failed" };
        url("/jobs", [("state", Some(state)), ("kind", Some(group.kind.as_str())), ("error_class", Some(group.class.as_str()))])
    }

    fn id(&self, group: &FailureGroup) -> String {
        blake3::hash(format!("{} {} {}", group.kind, group.class, group.shape).as_bytes()).to_hex()[..12].to_owned()
    }

    fn examined(&self) -> String {
        let jobs = counted(self.failures.jobs, "unsuccessful job", "unsuccessful jobs");
        match self.failures.is_capped {
            true => format!("of the newest {jobs}; there are more"),
            false => format!("of all {jobs}"),
        }
    }
}

/// Renders the page.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    let failures = call.failures().await?;
    let frame = call.frame("Failures", "failures").await?;
    let blank = failures.groups.is_empty().then(|| Blank {
        icon: Icon::Done,
        title: "No job has failed".into(),
        text: Html::words("Failed and cancelled jobs are grouped here by their errors."),
        actions: Vec::new(),
    });
    html(&FailuresPage { frame, failures, blank })
}
