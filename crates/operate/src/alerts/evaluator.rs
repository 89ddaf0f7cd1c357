//! One pass over all rules: reads a snapshot and the open alerts, decides, and writes what has changed.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use windlass_model::{NewJob, Time};
use windlass_store::{Alert, AlertChange, AlertMute, AlertState, AlertTarget};
use windlass_workflow::Error;

use super::{
    AlertMessage, Finding, Rule, evaluate,
    message::key,
    rule::Condition,
    snapshot::SnapshotReader,
    state::{Announcement, Step, step},
};
use crate::Operator;

/// How many alerts of one rule may be open: when a whole cluster goes down, a message for each worker helps nobody.
const MAX_PER_RULE: usize = 100;
/// How many open alerts are read: those of as many rules as there may be.
const MAX_OPEN: usize = 10_000;

/// Returns the address at which people see the target of an alert.
pub type TargetUrl = Arc<dyn Fn(&AlertTarget) -> String + Send + Sync>;

/// Evaluates rules, again and again. It keeps only what makes that cheap: what is known of alerts is in the store, so that any number of
/// evaluators with the same rules work on one store, and any of them may stop at any time.
pub struct Evaluator {
    rules: Vec<Rule>,
    link: Option<TargetUrl>,
    reader: SnapshotReader,
}

/// What a pass did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PassReport {
    /// How many alerts were open before it.
    pub open: usize,
    /// How many it changed.
    pub changed: usize,
    /// How many messages it submitted.
    pub messages: usize,
    /// How many findings it left out, because their rule has many alerts already.
    pub left_out: usize,
}

impl Evaluator {
    /// An evaluator of these rules, which are valid ([`Rule::check_all`]). Messages have links if `link` is given.
    pub fn new(rules: Vec<Rule>, link: Option<TargetUrl>) -> Evaluator {
        Evaluator { rules, link, reader: SnapshotReader::default() }
    }

    /// Whether there is any rule.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Evaluates all rules once.
    pub async fn pass(&mut self, operator: &Operator) -> Result<PassReport, Error> {
        let open = operator.store().open_alerts(MAX_OPEN).await?;
        let branches = self.subjects_of_branches(&open);
        let snapshot = self.reader.read(operator, &self.rules, &branches).await?;
        let findings = evaluate(&self.rules, &snapshot);
        let mut plan = Plan::new(&self.rules, &open, &findings, &[], snapshot.now);
        if plan.announces_anything() {
            // Unless a mute keeps the message.
            let mutes = operator.store().alert_mutes(None).await?;
            plan = Plan::new(&self.rules, &open, &findings, &mutes, snapshot.now);
        }
        let passed = PassReport { open: open.len(), left_out: plan.left_out, ..PassReport::default() };
        self.write(operator, plan, passed).await
    }

    /// The subjects of open alerts about branches.
    fn subjects_of_branches(&self, open: &[Alert]) -> HashSet<String> {
        let is_about_branches = |alert: &&Alert| {
            let mut rules = self.rules.iter();
            rules.any(|rule| rule.name == alert.rule && matches!(rule.when, Condition::StuckBranch { .. }))
        };
        open.iter().filter(is_about_branches).map(|alert| alert.subject.clone()).collect()
    }

    /// Writes what is planned. What another evaluator has changed meanwhile is left to it.
    async fn write(
        &self,
        operator: &Operator,
        plan: Plan<'_>,
        passed: PassReport,
    ) -> Result<PassReport, Error> {
        let mut changes = Vec::new();
        for PlannedStep { rule, alert, step } in plan.steps {
            changes.push(match (step, alert) {
                (Step::Keep, _) | (Step::Delete, None) => continue,
                (Step::Delete, Some(Alert { rule, subject, rev, .. })) => {
                    AlertChange::Delete { rule: rule.clone(), subject: subject.clone(), rev: *rev }
                }
                (Step::Set { alert, announcement }, _) => {
                    let message = match (rule, announcement) {
                        (Some(rule), Some(announcement)) => {
                            self.message(operator, rule, &alert, announcement)?
                        }
                        _ => None,
                    };
                    AlertChange::Set { alert, message: message.map(Box::new) }
                }
            });
        }
        if changes.is_empty() {
            return Ok(passed);
        }
        let written = operator.store().write_alerts(None, &changes).await?;
        let mut passed = passed;
        for (change, _) in changes.iter().zip(written).filter(|(_, is_written)| *is_written) {
            passed.changed += 1;
            passed.messages += usize::from(matches!(change, AlertChange::Set { message: Some(_), .. }));
            log(change);
        }
        if passed.messages > 0 {
            operator.poke();
        }
        Ok(passed)
    }

    fn message(
        &self,
        operator: &Operator,
        rule: &Rule,
        alert: &Alert,
        announcement: Announcement,
    ) -> Result<Option<NewJob>, Error> {
        let url = self.link.as_ref().map(|link| link(&alert.target));
        let message = AlertMessage::about(rule, alert, announcement, url);
        message.map(|message| message.job(operator, Some(key(alert, announcement)))).transpose()
    }
}

/// Logs what people want to find in the log of a server without a webhook.
fn log(change: &AlertChange) {
    let AlertChange::Set { alert, .. } = change else { return };
    let Alert { rule, subject, text, state, updated_at, .. } = &**alert;
    if *state == AlertState::Firing && alert.fired_at == Some(*updated_at) {
        tracing::warn!(rule, subject, "an alert fires: {text}");
    } else if *state == AlertState::Resolved && alert.resolved_at == Some(*updated_at) {
        tracing::info!(rule, subject, "an alert is resolved: {text}");
    }
}

/// What becomes of all alerts.
struct Plan<'a> {
    /// By rule and subject, so that all evaluators write in one order.
    steps: Vec<PlannedStep<'a>>,
    left_out: usize,
}

struct PlannedStep<'a> {
    rule: Option<&'a Rule>,
    alert: Option<&'a Alert>,
    step: Step,
}

impl<'a> Plan<'a> {
    fn new(
        rules: &'a [Rule],
        open: &'a [Alert],
        findings: &[Finding],
        mutes: &[AlertMute],
        now: Time,
    ) -> Plan<'a> {
        let known: BTreeMap<(&str, &str), &'a Alert> =
            open.iter().map(|alert| ((alert.rule.as_str(), alert.subject.as_str()), alert)).collect();
        let found: BTreeMap<(&str, &str), &Finding> = findings
            .iter()
            .map(|finding| ((finding.rule.as_str(), finding.subject.as_str()), finding))
            .collect();
        let subjects: BTreeSet<(&str, &str)> = known.keys().chain(found.keys()).copied().collect();
        let mut per_rule: BTreeMap<&str, usize> = BTreeMap::new();
        for alert in open {
            *per_rule.entry(&alert.rule).or_default() += 1;
        }
        let (mut steps, mut left_out) = (Vec::new(), 0);
        for (name, subject) in subjects {
            let (alert, finding) =
                (known.get(&(name, subject)).copied(), found.get(&(name, subject)).copied());
            if alert.is_none() {
                let open = per_rule.entry(name).or_default();
                if *open >= MAX_PER_RULE {
                    left_out += 1;
                    continue;
                }
                *open += 1;
            }
            let rule = rules.iter().find(|rule| rule.name == name);
            let is_muted = mutes.iter().any(|mute| mute.applies(name, subject, now));
            steps.push(PlannedStep { rule, alert, step: step(rule, alert, finding, is_muted, now) });
        }
        Plan { steps, left_out }
    }

    fn announces_anything(&self) -> bool {
        self.steps.iter().any(|planned| matches!(planned.step, Step::Set { announcement: Some(_), .. }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Time = Time(1_798_761_600_000_000);

    fn rules() -> Vec<Rule> {
        let when = Condition::WorkerLost { within: Duration::from_secs(600) };
        ["a", "b"].map(|name| Rule { webhook: Some("ops".into()), ..Rule::new(name, when.clone()) }).into()
    }

    fn finding(rule: &str, subject: usize) -> Finding {
        let queue = format!("{subject:04}");
        let (value, text) = (String::new(), String::new());
        let link = AlertTarget::Queue { queue: queue.clone() };
        Finding { rule: rule.into(), subject: queue, value, text, link }
    }

    /// Writes a plan as the store does.
    fn written(plan: Plan<'_>) -> Vec<Alert> {
        let alert = |planned: PlannedStep<'_>| match planned.step {
            Step::Set { alert, .. } => Some(*alert),
            Step::Keep => planned.alert.cloned(),
            Step::Delete => None,
        };
        plan.steps.into_iter().filter_map(alert).collect()
    }

    #[test]
    fn a_rule_has_a_limited_number_of_alerts_and_keeps_those_that_it_has() {
        let rules = rules();
        let findings: Vec<Finding> = (50..50 + MAX_PER_RULE + 7).map(|n| finding("a", n)).collect();
        let plan = Plan::new(&rules, &[], &findings, &[], NOW);
        assert_eq!((plan.steps.len(), plan.left_out), (MAX_PER_RULE, 7));
        let open = written(plan);
        // Others that come before them in the order of names push none of them out.
        let more: Vec<Finding> =
            (0..50 + MAX_PER_RULE + 7).map(|n| finding("a", n)).chain([finding("b", 1)]).collect();
        let plan = Plan::new(&rules, &open, &more, &[], NOW);
        assert_eq!((plan.steps.len(), plan.left_out), (MAX_PER_RULE + 1, 57));
        assert!(plan.steps.iter().take(MAX_PER_RULE).all(|planned| planned.step == Step::Keep));
    }

    #[test]
    fn alerts_are_written_in_the_order_of_rules_and_subjects() {
        let rules = rules();
        let findings = [finding("b", 1), finding("a", 2), finding("a", 1)];
        let plan = Plan::new(&rules, &[], &findings, &[], NOW);
        assert!(plan.announces_anything());
        let open = written(plan);
        let names: Vec<_> = open.iter().map(|alert| (alert.rule.as_str(), alert.subject.as_str())).collect();
        assert_eq!(names, [("a", "0001"), ("a", "0002"), ("b", "0001")]);
    }

    #[test]
    fn a_mute_keeps_the_messages_of_its_subject() {
        let rules = rules();
        let findings = [finding("a", 1), finding("a", 2)];
        let mute = AlertMute {
            rule: "a".into(),
            subject: Some("0001".into()),
            until: None,
            at: NOW,
            author: "ada".into(),
            note: None,
        };
        let plan = Plan::new(&rules, &[], &findings, std::slice::from_ref(&mute), NOW);
        let announced: Vec<bool> = plan
            .steps
            .iter()
            .map(|planned| matches!(planned.step, Step::Set { announcement: Some(_), .. }))
            .collect();
        assert_eq!(announced, [false, true]);
    }
}
