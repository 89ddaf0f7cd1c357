//! Alert rules and webhooks: `[[alerts]]` and `[webhooks.NAME]`.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

#[cfg(feature = "serve")]
use anyhow::Context;
use anyhow::{anyhow, bail};
use toml::{Table, Value};
use windlass::{
    model::limits::check_name,
    operate::alerts::{Condition, JobSelection, RateUnit, Rule},
};

use super::{
    file::{boolean, display, duration, number, string, unknown},
    nearest,
};

/// The webhook of rules that name none, if there is one.
const DEFAULT_WEBHOOK: &str = "default";

/// The settings of a webhook.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WebhookSettings {
    /// Where messages are posted.
    pub(crate) url: String,
    /// The file with the secret that signs them.
    pub(crate) secret_file: PathBuf,
}

/// The settings of alerts in one layer.
#[derive(Clone, Default, Debug, PartialEq)]
pub(crate) struct AlertSettings {
    /// The rules; `None` if this layer sets none.
    pub(super) rules: Option<Vec<Rule>>,
    /// The webhooks, by name.
    pub(crate) webhooks: BTreeMap<String, WebhookSettings>,
}

impl AlertSettings {
    /// These settings over those of the layer below.
    pub(super) fn over(self, below: AlertSettings) -> AlertSettings {
        let webhooks = below.webhooks.into_iter().chain(self.webhooks).collect();
        AlertSettings { rules: self.rules.or(below.rules), webhooks }
    }

    /// The rules: those of the settings, or else the built-in ones. A rule that names no webhook has the one called `default`, if there is
    /// one.
    pub(crate) fn rules(&self) -> Vec<Rule> {
        let mut rules = self.rules.clone().unwrap_or_else(Rule::built_in);
        if self.webhooks.contains_key(DEFAULT_WEBHOOK) {
            for rule in &mut rules {
                rule.webhook.get_or_insert_with(|| DEFAULT_WEBHOOK.to_owned());
            }
        }
        rules
    }

    /// Makes an engine post messages, if there are webhooks.
    #[cfg(feature = "serve")]
    pub(crate) fn serve_webhooks(&self, engine: windlass::Builder) -> anyhow::Result<windlass::Builder> {
        let mut webhooks = windlass_server::Webhooks::default();
        for (name, WebhookSettings { url, secret_file }) in &self.webhooks {
            let secret = super::secret::read("the secret file", secret_file)
                .with_context(|| format!("`webhooks.{name}`"))?;
            let webhook = windlass_server::Webhook::new(url, secret.trim())
                .map_err(|why| anyhow!("`webhooks.{name}`: {why}"))?;
            webhooks.add(name, webhook);
        }
        Ok(webhooks.serve(engine))
    }
}

/// Reads `[[alerts]]`.
pub(super) fn rules(settings: &mut AlertSettings, value: &Value) -> anyhow::Result<()> {
    let wrong = || {
        anyhow!(
            "`alerts` is a list of rules; write each as [[alerts]] with name = \"…\" and when = \"…\" below, or `alerts = []` for none"
        )
    };
    let Value::Array(list) = value else { return Err(wrong()) };
    let mut rules = Vec::with_capacity(list.len());
    for (number, value) in (1..).zip(list) {
        let Value::Table(table) = value else { return Err(wrong()) };
        rules.push(rule(number, table)?);
    }
    Rule::check_all(&rules)?;
    settings.rules = Some(rules);
    Ok(())
}

/// The keys that every rule may have.
const COMMON: [&str; 7] = ["name", "when", "for", "clear_for", "severity", "webhook", "muted"];

/// The conditions, and the keys that each takes besides.
const CONDITIONS: [(&str, &[&str]); 7] = [
    ("oldest_ready", &["queue", "above"]),
    ("failures", &["kind", "queue", "above", "within"]),
    ("error_rate", &["kind", "queue", "percent", "of", "at_least", "within"]),
    ("stuck_branch", &["above"]),
    ("schedule_missed", &["schedule", "within"]),
    ("worker_lost", &["within"]),
    ("queue_paused", &["queue", "above"]),
];

fn rule(number: usize, table: &Table) -> anyhow::Result<Rule> {
    let Some(name) = table.get("name") else {
        bail!("rule {number} in `alerts` has no name; add name = \"…\", by which people mute it")
    };
    let name = string(&format!("alerts.{number}.name"), name)?;
    let fields = Fields { path: format!("alerts.{name}"), table };
    let condition = fields.condition()?;
    let mut rule = Rule::new(name, condition);
    rule.fire_after = fields.span("for")?.unwrap_or(rule.fire_after);
    rule.clear_for = fields.span("clear_for")?.unwrap_or(rule.clear_for);
    if let Some(severity) = fields.text("severity")? {
        rule.severity = severity.parse().map_err(|why| anyhow!("`{}`: {why}", fields.at("severity")))?;
    }
    rule.webhook = fields.text("webhook")?;
    if let Some(muted) = table.get("muted") {
        rule.is_muted = boolean(&fields.at("muted"), muted)?;
    }
    Ok(rule)
}

/// The table of a rule.
struct Fields<'a> {
    path: String,
    table: &'a Table,
}

impl Fields<'_> {
    fn at(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    fn text(&self, key: &str) -> anyhow::Result<Option<String>> {
        self.table.get(key).map(|value| string(&self.at(key), value)).transpose()
    }

    fn span(&self, key: &str) -> anyhow::Result<Option<Duration>> {
        self.table.get(key).map(|value| duration(&self.at(key), value)).transpose()
    }

    fn number(&self, key: &str) -> anyhow::Result<Option<u64>> {
        self.table.get(key).map(|value| Ok(number(&self.at(key), value)? as u64)).transpose()
    }

    /// What a condition cannot do without.
    fn must<T>(&self, key: &str, value: Option<T>, example: &str) -> anyhow::Result<T> {
        value.ok_or_else(|| anyhow!("`{}` is missing; add {key} = {example}", self.at(key)))
    }

    fn condition(&self) -> anyhow::Result<Condition> {
        let names: Vec<&str> = CONDITIONS.iter().map(|(name, _)| *name).collect();
        let when = self.must("when", self.text("when")?, &format!("one of {}", names.join(", ")))?;
        let Some((_, own)) = CONDITIONS.iter().find(|(name, _)| *name == when) else {
            let near = nearest::of(&when, names.iter().copied());
            let near = near.map(|near| format!("did you mean {near:?}? ")).unwrap_or_default();
            bail!(
                "`{}` is {when:?}, which is no condition; {near}The conditions are {}",
                self.at("when"),
                names.join(", ")
            );
        };
        self.check_keys(&when, own)?;
        let ends = || -> anyhow::Result<JobSelection> {
            Ok(JobSelection { kind: self.text("kind")?, queue: self.text("queue")? })
        };
        let above = || self.must("above", self.span("above")?, "\"10m\"");
        let within = || self.must("within", self.span("within")?, "\"10m\"");
        Ok(match when.as_str() {
            "oldest_ready" => Condition::OldestReady { queue: self.text("queue")?, above: above()? },
            "failures" => Condition::Failures {
                of: ends()?,
                above: self.must("above", self.number("above")?, "10")?,
                within: within()?,
            },
            "error_rate" => Condition::ErrorRate {
                of: ends()?,
                count: self.counted()?,
                percent: self.must("percent", self.number("percent")?, "50")?.try_into().unwrap_or(u32::MAX),
                at_least: self.must("at_least", self.number("at_least")?, "20")?,
                within: within()?,
            },
            "stuck_branch" => Condition::StuckBranch { above: above()? },
            "schedule_missed" => {
                Condition::ScheduleMissed { schedule: self.text("schedule")?, within: within()? }
            }
            "worker_lost" => Condition::WorkerLost { within: within()? },
            _ => Condition::QueuePaused { queue: self.text("queue")?, above: above()? },
        })
    }

    fn counted(&self) -> anyhow::Result<RateUnit> {
        match self.text("of")?.as_deref() {
            None => Ok(RateUnit::default()),
            Some("attempts") => Ok(RateUnit::Attempts),
            Some("jobs") => Ok(RateUnit::Jobs),
            Some(other) => bail!("`{}` is {other:?}, and must be \"attempts\" or \"jobs\"", self.at("of")),
        }
    }

    /// Refuses keys that no rule has, and those of other conditions.
    fn check_keys(&self, when: &str, own: &[&str]) -> anyhow::Result<()> {
        let known: Vec<&str> = COMMON.iter().chain(own).copied().collect();
        if let Some(key) = self.table.keys().find(|key| !known.contains(&key.as_str())) {
            let mut others = CONDITIONS.iter().filter(|(_, keys)| keys.contains(&key.as_str()));
            if let Some((other, _)) = others.next() {
                bail!(
                    "`{}` is for conditions like {other}, and not for {when}, which takes {}",
                    self.at(key),
                    own.join(", ")
                );
            }
            return Err(unknown(&self.at(key), &known));
        }
        Ok(())
    }
}

/// Reads `[webhooks.NAME]`.
pub(super) fn webhooks(settings: &mut AlertSettings, value: &Value) -> anyhow::Result<()> {
    const KEYS: [&str; 2] = ["url", "secret_file"];
    let wrong = |name: &str| {
        anyhow!(
            "`webhooks` has a table for each webhook; write it as [webhooks.{name}] with url and secret_file below"
        )
    };
    let Value::Table(webhooks) = value else { return Err(wrong("default")) };
    for (name, value) in webhooks {
        check_name("webhook", name)?;
        let Value::Table(table) = value else { return Err(wrong(name)) };
        let path = |key: &str| format!("webhooks.{name}.{key}");
        if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(unknown(&path(key), &KEYS));
        }
        let text = |key: &str| match table.get(key) {
            Some(value) => string(&path(key), value),
            None => {
                bail!("`{}` is missing; a webhook has an address and a secret that signs messages", path(key))
            }
        };
        let (url, secret_file) = (text("url")?, text("secret_file")?.into());
        settings.webhooks.insert(name.clone(), WebhookSettings { url, secret_file });
    }
    Ok(())
}

/// Refuses rules that name webhooks which there are not.
pub(super) fn check_webhooks(settings: &AlertSettings) -> anyhow::Result<()> {
    let names = || settings.webhooks.keys().map(String::as_str);
    for rule in settings.rules.iter().flatten() {
        let Some(webhook) = &rule.webhook else { continue };
        if settings.webhooks.contains_key(webhook) {
            continue;
        }
        let near = match nearest::of(webhook, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("add [webhooks.{webhook}] with url and secret_file"),
        };
        bail!(
            "`alerts.{}.webhook` is {}, and there is no such webhook; {near}",
            rule.name,
            display(&Value::String(webhook.clone()))
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use windlass::store::Severity;

    use super::{super::file::parse, *};

    fn settings(text: &str) -> AlertSettings {
        parse(text).unwrap_or_else(|error| panic!("{text}: {error:#}")).alerts
    }

    fn error(text: &str) -> String {
        format!("{:#}", parse(text).expect_err(text))
    }

    #[test]
    fn a_rule_is_read_with_all_that_it_may_have() {
        let settings = settings(
            "[[alerts]]\nname = 'mail-behind'\nwhen = 'oldest_ready'\nqueue = 'mail'\nabove = '10m'\nfor = '2m'\nclear_for = '3m'\n\
             severity = 'bad'\nwebhook = 'ops'\nmuted = true\n\
             [[alerts]]\nname = 'rate'\nwhen = 'error_rate'\npercent = 20\nof = 'jobs'\nat_least = 7\nwithin = '1h'\n\
             [webhooks.ops]\nurl = 'https://hooks.example/x'\nsecret_file = 'ops.secret'",
        );
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let rules = settings.rules();
        let when = Condition::OldestReady { queue: Some("mail".into()), above: minutes(10) };
        let expected = Rule {
            fire_after: minutes(2),
            clear_for: minutes(3),
            severity: Severity::Bad,
            webhook: Some("ops".into()),
            is_muted: true,
            ..Rule::new("mail-behind", when)
        };
        assert_eq!(rules[0], expected);
        let when = Condition::ErrorRate {
            of: JobSelection::default(),
            count: RateUnit::Jobs,
            percent: 20,
            at_least: 7,
            within: minutes(60),
        };
        assert_eq!(rules[1], Rule::new("rate", when));
        assert_eq!(settings.webhooks["ops"].secret_file, PathBuf::from("ops.secret"));
    }

    #[test]
    fn every_condition_can_be_written() {
        for (name, keys) in CONDITIONS {
            let value = |key: &&str| match *key {
                "queue" | "kind" | "schedule" => None,
                "of" => Some("of = 'attempts'".to_owned()),
                "percent" | "at_least" => Some(format!("{key} = 5")),
                "above" if name == "failures" => Some("above = 5".to_owned()),
                key => Some(format!("{key} = '10m'")),
            };
            let fields: Vec<String> = keys.iter().filter_map(value).collect();
            let read = settings(&format!("[[alerts]]\nname = 'r'\nwhen = '{name}'\n{}", fields.join("\n")));
            assert_eq!(read.rules()[0].when.name(), name);
        }
    }

    #[test]
    fn a_file_without_rules_has_the_built_in_ones_and_an_empty_list_has_none() {
        assert_eq!(settings("").rules(), Rule::built_in());
        assert_eq!(settings("alerts = []").rules(), []);
        let webhook = "[webhooks.default]\nurl = 'https://hooks.example/x'\nsecret_file = 's'";
        assert!(settings(webhook).rules().iter().all(|rule| rule.webhook.as_deref() == Some("default")));
        let rule = "[[alerts]]\nname = 'r'\nwhen = 'worker_lost'\nwithin = '10m'\n";
        assert_eq!(settings(&format!("{rule}{webhook}")).rules()[0].webhook.as_deref(), Some("default"));
        assert_eq!(settings(rule).rules()[0].webhook, None);
    }

    #[test]
    fn what_is_wrong_in_a_rule_is_said_with_its_name() {
        let rule = |fields: &str| error(&format!("[[alerts]]\nname = 'r'\n{fields}"));
        assert!(error("alerts = 3").contains("[[alerts]]") && error("alerts = [3]").contains("[[alerts]]"));
        assert!(error("[[alerts]]\nwhen = 'failures'").contains("rule 1 in `alerts` has no name"));
        assert!(rule("").contains("`alerts.r.when` is missing; add when = one of oldest_ready"));
        assert!(rule("when = 'failure'").contains("did you mean \"failures\"?"));
        assert!(rule("when = 'worker_lost'").contains("`alerts.r.within` is missing"));
        assert!(
            rule("when = 'worker_lost'\nwithin = '1h'\nseverty = 'bad'").contains("did you mean `severity`?")
        );
        assert!(
            rule("when = 'worker_lost'\nwithin = '1h'\nseverity = 'worst'").contains("none of bad, warn")
        );
        let other = rule("when = 'worker_lost'\nwithin = '1h'\npercent = 3");
        assert!(
            other.contains("`alerts.r.percent` is for conditions like error_rate, and not for worker_lost"),
            "{other}"
        );
        assert!(rule("when = 'failures'\nabove = '1h'\nwithin = '1h'").contains("whole number"));
        assert!(rule("when = 'failures'\nabove = 1\nwithin = '1s'").contains("from 1m to 24h"));
        let webhooks = "[webhooks.ops]\nurl = 'https://a/'\nsecret_file = 's'";
        let near = error(&format!(
            "[[alerts]]\nname = 'r'\nwhen = 'worker_lost'\nwithin = '1h'\nwebhook = 'op'\n{webhooks}"
        ));
        assert!(near.contains("did you mean `ops`?"), "{near}");
        assert!(rule("when = 'worker_lost'\nwithin = '1h'\nwebhook = 'op'").contains("add [webhooks.op]"));
        assert!(
            error("[webhooks.ops]\nurl = 'https://a/'").contains("`webhooks.ops.secret_file` is missing")
        );
        assert!(error("[webhooks.ops]\nurl = 'https://a/'\nsecret = 's'").contains("secret_file"));
        assert!(error("webhooks = 3").contains("[webhooks.default]"));
    }
}
