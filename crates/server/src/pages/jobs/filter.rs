//! The filter of a list of jobs, as it stands in an address. Pure.

use windlass::{Filter, JobId, State, Time};

use crate::{
    error::Error,
    pages::{
        form::{Form, url},
        format::rfc3339,
        parts::{Chip, FilterField},
    },
};

/// How many jobs a page has.
pub(super) const ROWS: usize = 50;

/// The fields of a filter with their names for people.
const FIELDS: [(&str, &str); 10] = [
    ("kind", "kind"),
    ("queue", "queue"),
    ("tag", "tag"),
    ("key", "key"),
    ("key_prefix", "key begins with"),
    ("error_class", "error class"),
    ("stage", "stage"),
    ("version", "version"),
    ("since", "submitted since"),
    ("until", "submitted before"),
];

/// The conditions of a list, as they were written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ListFilter {
    /// Names and values, the state among them, without those that are empty.
    conditions: Vec<(&'static str, String)>,
    is_top: bool,
}

impl ListFilter {
    /// Of the fields of a query or a form.
    pub(super) fn of(form: &Form) -> ListFilter {
        let names = FIELDS.iter().map(|(name, _)| *name).chain(["state"]);
        let conditions = names.filter_map(|name| Some((name, form.text(name)?.to_owned()))).collect();
        ListFilter { conditions, is_top: form.text("top") == Some("true") }
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.conditions.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// The state that it names.
    pub(super) fn state(&self) -> Result<Option<State>, Error> {
        self.parsed("state", "use one of scheduled, ready, running, waiting, done, failed and cancelled")
    }

    /// A condition that is written as text. The spans `1h` and `24h` count back from `now`.
    fn parsed<T: std::str::FromStr>(&self, name: &'static str, hint: &str) -> Result<Option<T>, Error> {
        let Some(text) = self.value(name) else { return Ok(None) };
        let wrong = |_| Error::invalid(format!("{text:?} is no {name}"), hint);
        text.parse().map(Some).map_err(wrong)
    }

    fn time(&self, name: &'static str, now: Time) -> Result<Option<Time>, Error> {
        let Some(text) = self.value(name) else { return Ok(None) };
        if let Ok(span) = windlass::operate::text::parse_duration(text) {
            return Ok(Some(now - span));
        }
        self.parsed(name, "write it as 2026-11-19T14:00:00Z, or as a span before now: 24h")
    }

    /// The filter of the store, for a page of jobs before one.
    pub(super) fn filter(&self, before: Option<JobId>, now: Time) -> Result<Filter, Error> {
        let text = |name| self.value(name).map(str::to_owned);
        Ok(Filter {
            state: self.state()?,
            kind: text("kind"),
            queue: text("queue"),
            tag: text("tag"),
            key: text("key"),
            key_prefix: text("key_prefix"),
            error_class: text("error_class"),
            stage: text("stage"),
            version: self.parsed("version", "write it as a number")?,
            top: self.is_top,
            since: self.time("since", now)?,
            until: self.time("until", now)?,
            before,
            limit: ROWS,
        })
    }

    /// Whether nothing is filtered but perhaps the state.
    pub(super) fn is_state_alone(&self) -> bool {
        !self.is_top && self.conditions.iter().all(|(name, _)| *name == "state")
    }

    /// The address of the list, with one condition set or left out.
    pub(super) fn with(&self, name: &str, value: Option<&str>) -> String {
        let others = self.fields().into_iter().filter(|(known, _)| *known != name);
        let others: Vec<(&str, String)> = others.collect();
        url("/jobs", others.iter().map(|(name, value)| (*name, Some(value.as_str()))).chain([(name, value)]))
    }

    /// The address of the list.
    pub(super) fn href(&self) -> String {
        self.with("", None)
    }

    /// The fields of a form that keeps it.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let top = self.is_top.then(|| ("top", "true".to_owned()));
        self.conditions.iter().cloned().chain(top).collect()
    }

    /// A chip for each condition but the state, which the tabs show.
    pub(super) fn chips(&self) -> Vec<Chip> {
        let name = |field: &str| FIELDS.iter().find(|(known, _)| *known == field).map_or(field, |(_, name)| *name).to_owned();
        let conditions = self.conditions.iter().filter(|(field, _)| *field != "state");
        let chip = |(field, value): &(&'static str, String)| Chip {
            name: name(field),
            value: value.clone(),
            without: self.with(field, None),
        };
        let top = self.is_top.then(|| Chip { name: "only".into(), value: "without a parent".into(), without: self.with("top", None) });
        conditions.map(chip).chain(top).collect()
    }

    /// The conditions that can be added.
    pub(super) fn addable(&self, kinds: Vec<String>, queues: Vec<String>) -> Vec<FilterField> {
        let field = |name, label, hint, values| FilterField { name, label, hint, values };
        let all = [
            field("kind", "Kind", "", kinds),
            field("queue", "Queue", "", queues),
            field("tag", "Tag", "a tag", Vec::new()),
            field("key_prefix", "Key begins with", "order-", Vec::new()),
            field("error_class", "Error class", "of failed and cancelled jobs", Vec::new()),
            field("stage", "Stage", "of a machine", Vec::new()),
            field("since", "Submitted since", "24h, or 2026-11-19T14:00Z", Vec::new()),
            field("until", "Submitted before", "1h, or 2026-11-19T14:00Z", Vec::new()),
            field("top", "Only jobs without a parent", "", vec!["true".into()]),
        ];
        all.into_iter().filter(|field| self.value(field.name).is_none() && !(field.name == "top" && self.is_top)).collect()
    }

    /// What it selects, in words: `failed jobs of the kind mail`.
    pub(super) fn words(&self) -> String {
        let state = self.value("state").map(|state| format!("{state} ")).unwrap_or_default();
        let others = self.conditions.iter().filter(|(field, _)| *field != "state");
        let others: Vec<String> = others.map(|(field, value)| format!("{field} {value}")).collect();
        let top = if self.is_top { " without a parent" } else { "" };
        match others.as_slice() {
            [] => format!("{state}jobs{top}"),
            others => format!("{state}jobs{top} ({})", others.join(", ")),
        }
    }
}

/// A time before now as the value of `since`.
pub(crate) fn since(at: Time) -> String {
    rfc3339(at)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Time = Time(1_800_000_000_000_000);

    fn of(query: &str) -> ListFilter {
        ListFilter::of(&Form::parse(query.as_bytes()))
    }

    #[test]
    fn an_address_becomes_a_filter_and_an_address_again() {
        let list = of("state=failed&kind=mail&other=1&tag=&top=true");
        let filter = list.filter(None, NOW).ok().expect("a filter");
        assert_eq!((filter.state, filter.kind.as_deref(), filter.tag, filter.top), (Some(State::Failed), Some("mail"), None, true));
        assert_eq!(list.href(), "/jobs?kind=mail&state=failed&top=true");
        assert_eq!(list.with("kind", None), "/jobs?state=failed&top=true");
        assert_eq!(list.with("state", Some("done")), "/jobs?kind=mail&top=true&state=done");
        assert_eq!(list.chips().len(), 2, "the state is a tab");
        assert!(of("state=failed").is_state_alone() && !list.is_state_alone());
        assert_eq!(list.words(), "failed jobs without a parent (kind mail)");
    }

    #[test]
    fn times_are_spans_or_times_and_wrong_values_say_so() {
        let filter = of("since=24h").filter(None, NOW).ok().expect("a filter");
        assert_eq!(filter.since, Some(NOW - Duration::from_secs(86_400)));
        for wrong in ["since=yesterday", "state=lost", "version=one"] {
            assert!(of(wrong).filter(None, NOW).is_err(), "{wrong}");
        }
    }
}
