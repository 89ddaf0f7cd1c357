//! The audit log: who did what to which job, queue, schedule or user, when and why.

use askama::Template;
use windlass::{
    JobId,
    operate::views::AuditPage as Entries,
    store::{AuditEntry, AuditFilter},
};

use super::{
    form::url,
    format::When,
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    page::{PageCall, html},
    parts::{Blank, Newer, Pages},
};
use crate::error::Error;

/// How many entries a page has.
const ROWS: usize = 50;

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    subject: String,
    entries: Vec<AuditEntry>,
    newer: Newer,
    pages: Pages,
    blank: Option<Blank>,
    /// What is wrong with the address.
    wrong: Option<String>,
}

impl AuditPage {
    fn at(&self, at: &windlass::Time) -> When {
        self.frame.clock().at(*at)
    }

    fn action(&self, action: &str) -> String {
        action.replace('_', " ")
    }

    /// The subject, with a link to its entries; of a job also to its page.
    fn subject(&self, entry: &AuditEntry) -> Html {
        let entries = url("/audit", [("subject", Some(entry.subject.as_str()))]);
        match entry.subject.parse::<JobId>() {
            Ok(job) => {
                let shown = job.to_string()[24..].to_owned();
                Html::words("job ")
                    .link(&format!("/jobs/{job}"), &shown)
                    .text(" · ")
                    .link(&entries, "all of it")
            }
            Err(_) => Html::new().link(&entries, &entry.subject),
        }
    }
}

/// Renders the page. `before` is the number that the page is older than; `at` that of its first entry, where it stays when entries are added.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    let subject = call.query.text("subject").map(str::to_owned);
    let (before, wrong) = match call.query.parsed::<i64>("before") {
        Ok(before) => (before, None),
        Err(_) => {
            (None, Some("The address has no number after “before”: these are the newest entries.".to_owned()))
        }
    };
    let anchor = call.query.parsed::<i64>("at").ok().flatten().filter(|_| before.is_none());
    let from = before.or(anchor.map(|number| number.saturating_add(1)));
    let page =
        Entries::read(call.operator(), &AuditFilter { subject: subject.clone(), before: from, limit: ROWS })
            .await?;
    let newer = match anchor {
        Some(anchor) => {
            let newest = AuditFilter { subject: subject.clone(), before: None, limit: ROWS };
            let newest = call.operator().inspect().audit(&newest).await?;
            newest.iter().filter(|entry| entry.number > anchor).count() as u64
        }
        None => 0,
    };
    let address = |field, number: Option<i64>| {
        let number = number.map(|number| number.to_string());
        url("/audit", [("subject", subject.as_deref()), (field, number.as_deref())])
    };
    let first = page.entries.first().map(|entry| entry.number);
    let live = match (before, anchor.or(first)) {
        (Some(_), _) => address("before", before),
        (None, first) => address("at", first),
    };
    let frame = call.frame_at("Audit", "audit", &live).await?;
    let blank = page.entries.is_empty().then(|| Blank {
        icon: Icon::Audit,
        title: if subject.is_some() || before.is_some() { "No entry is about this".into() } else { "Nobody has changed anything".into() },
        text: Html::words("Whatever people and programs do to jobs, queues, limits, schedules, users and tokens is here, with their names and notes."),
        actions: Vec::new(),
    });
    let pages = Pages {
        text: windlass::operate::text::counted(
            page.entries.len() as u64,
            "entry, newest first",
            "entries, newest first",
        ),
        first: before.map(|_| address("before", None)),
        next: page.next_before.map(|number| address("before", Some(number))),
    };
    let newer = Newer { count: newer, noun: ("entry", "entries"), href: address("before", None) };
    html(&AuditPage {
        frame,
        subject: subject.unwrap_or_default(),
        entries: page.entries,
        newer,
        pages,
        blank,
        wrong,
    })
}
