//! Alerts.

use std::cmp::Reverse;

use windlass_model::schedule::MISSED_BY_OVERLAP;

use super::*;
use crate::{
    Alert, AlertChange, AlertMute, Alerts, ControlOutcome, MISSES_READ, Miss, NewAlertMute,
    alerts::{MUTED, TESTED, UNMUTED, audit_subject, check, check_message, check_mute, check_names, outcome},
    control::check_actor,
};

impl Inner {
    /// Writes a change, and submits its message. Returns whether the alert was as the change knows it.
    fn write_alert(&mut self, now: Time, change: &AlertChange) -> bool {
        let (rule, subject, follows, at) = match change {
            AlertChange::Set { alert, .. } => (&alert.rule, &alert.subject, alert.rev, alert.updated_at),
            AlertChange::Delete { rule, subject, rev } => (rule, subject, *rev, now),
        };
        let key = (rule.clone(), subject.clone());
        let stored = self.alerts.get(&key);
        let fits = match follows {
            0 => stored.is_none_or(|stored| !stored.is_open() && stored.updated_at <= at),
            rev => stored.is_some_and(|stored| stored.rev == rev),
        };
        if !fits {
            return false;
        }
        let AlertChange::Set { alert, message } = change else {
            self.alerts.remove(&key);
            return true;
        };
        let mut alert = Alert { rev: stored.map_or(1, |stored| stored.rev + 1), ..(**alert).clone() };
        if let Some(replaced) = stored.filter(|_| follows == 0 && alert.fired_at.is_none()) {
            (alert.fired_at, alert.resolved_at) = (replaced.fired_at, replaced.resolved_at);
        }
        self.alerts.insert(key, alert);
        if let Some(message) = message {
            self.insert_jobs(now, std::slice::from_ref(message), None);
        }
        true
    }
}

impl Alerts for Memory {
    fn write_alerts<'a>(&'a self, now: Now, changes: &'a [AlertChange]) -> Fut<'a, Vec<bool>> {
        self.run(now, |inner, now| {
            check(changes, &self.limits)?;
            Ok(changes.iter().map(|change| inner.write_alert(now, change)).collect())
        })
    }

    fn open_alerts(&self, limit: usize) -> Fut<'_, Vec<Alert>> {
        self.run(None, move |inner, _| {
            Ok(inner.alerts.values().filter(|alert| alert.is_open()).take(limit).cloned().collect())
        })
    }

    fn resolved_alerts(&self, limit: usize) -> Fut<'_, Vec<Alert>> {
        self.run(None, move |inner, _| {
            let mut alerts: Vec<Alert> =
                inner.alerts.values().filter(|alert| !alert.is_open()).cloned().collect();
            alerts.sort_by_key(|alert| Reverse(alert.updated_at));
            alerts.truncate(limit);
            Ok(alerts)
        })
    }

    fn test_alert<'a>(
        &'a self,
        now: Now,
        rule: &'a str,
        message: &'a NewJob,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome> {
        self.run(now, |inner, now| {
            check_actor(actor)?;
            check_names(rule, None)?;
            check_message(message, &self.limits)?;
            inner.insert_jobs(now, std::slice::from_ref(message), None);
            inner.log(now, TESTED, rule, actor);
            Ok(ControlOutcome::Created(message.id))
        })
    }

    fn mute_alerts<'a>(
        &'a self,
        now: Now,
        mute: &'a NewAlertMute,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome> {
        self.run(now, |inner, now| {
            check_mute(mute, actor)?;
            let NewAlertMute { rule, subject, until } = mute.clone();
            inner.log(now, MUTED, &audit_subject(&rule, subject.as_deref()), actor);
            let key = (rule.clone(), subject.clone());
            let (author, note) = (actor.author.clone(), actor.note.clone());
            inner.alert_mutes.insert(key, AlertMute { rule, subject, until, at: now, author, note });
            Ok(ControlOutcome::Done)
        })
    }

    fn unmute_alerts<'a>(
        &'a self,
        now: Now,
        rule: &'a str,
        subject: Option<&'a str>,
        actor: &'a Actor,
    ) -> Fut<'a, ControlOutcome> {
        self.run(now, |inner, now| {
            check_actor(actor)?;
            check_names(rule, subject)?;
            let muted = inner.alert_mutes.remove(&(rule.to_owned(), subject.map(str::to_owned)));
            if muted.is_none_or(|mute| mute.until.is_some_and(|until| until <= now)) {
                return Ok(outcome::not_muted());
            }
            inner.log(now, UNMUTED, &audit_subject(rule, subject), actor);
            Ok(ControlOutcome::Done)
        })
    }

    fn alert_mutes(&self, now: Now) -> Fut<'_, Vec<AlertMute>> {
        self.run(now, |inner, now| {
            let holds = |mute: &&AlertMute| mute.until.is_none_or(|until| until > now);
            Ok(inner.alert_mutes.values().filter(holds).cloned().collect())
        })
    }

    fn prune_alerts(&self, before: Time, limit: usize) -> Fut<'_, usize> {
        self.run(None, move |inner, _| {
            let is_old = |alert: &Alert| !alert.is_open() && alert.updated_at < before;
            let mut old: Vec<&Alert> = inner.alerts.values().filter(|alert| is_old(alert)).collect();
            old.sort_by_key(|alert| alert.updated_at);
            let old: Vec<_> = old
                .into_iter()
                .take(limit)
                .map(|alert| (alert.rule.clone(), alert.subject.clone()))
                .collect();
            old.iter().for_each(|key| _ = inner.alerts.remove(key));
            let has_ended = |mute: &AlertMute| mute.until.is_some_and(|until| until < before);
            let ended = inner.alert_mutes.iter().filter(|(_, mute)| has_ended(mute)).take(limit);
            let ended: Vec<_> = ended.map(|(key, _)| key.clone()).collect();
            ended.iter().for_each(|key| _ = inner.alert_mutes.remove(key));
            Ok(old.len() + ended.len())
        })
    }

    fn latest_misses(&self) -> Fut<'_, Vec<(String, Miss)>> {
        self.run(None, |inner, _| {
            let latest = |(name, stored): (&String, &schedule::StoredSchedule)| {
                let newest = stored.misses.iter().rev().take(MISSES_READ);
                let miss = newest.into_iter().find(|miss| miss.why != MISSED_BY_OVERLAP)?;
                Some((name.clone(), miss.clone()))
            };
            Ok(inner.schedules.iter().filter_map(latest).collect())
        })
    }
}
