//! Checks of jobs that are submitted, and of signals.

use super::{
    Invalid, Limits, MAX_DELAY, MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_OPTIONS_BYTES, MAX_TAGS, check_key,
    check_name, check_prefix, check_slots, check_stage, check_text, invalid, quoted,
};
use crate::{NewJob, NewSignal, Rev, Time, When, rank::MAX_PRIORITY, rate::MAX_TOKENS, trace};

impl Limits {
    /// Checks a job before it is submitted.
    pub fn check(&self, job: &NewJob) -> Result<(), Invalid> {
        if job.branch_position.is_some() {
            let hint = "leave it out; children of a branch are submitted by the steps of its job";
            return Err(invalid("the position in a branch", "is given with a submit", hint));
        }
        if job.parent_rev == Some(Rev::DETACHED) {
            let hint = "leave it out; only the commit of a workflow submits detached children";
            return Err(invalid("the revision of the parent", "is given with a submit", hint));
        }
        self.check_job(job)
    }

    /// Checks a signal before it is sent.
    pub fn check_signal(&self, signal: &NewSignal) -> Result<(), Invalid> {
        signal.check()?;
        self.check_payload("payload of the signal", &signal.payload.bytes)
    }

    /// Checks the size of an encoded payload; `what` says what it is, for example "input".
    pub fn check_payload(&self, what: &str, bytes: &[u8]) -> Result<(), Invalid> {
        if bytes.len() <= self.payload {
            return Ok(());
        }
        let why = format!("is {} bytes long, more than the {} allowed", bytes.len(), self.payload);
        let raise = Limits::raise_hint("payload");
        let hint = format!("keep large data elsewhere and pass a reference, or {raise}");
        Err(invalid(format!("the {what}"), why, hint))
    }

    /// Checks a job, whether it is submitted by itself or as a child by a commit.
    pub(super) fn check_job(&self, job: &NewJob) -> Result<(), Invalid> {
        check_identity(job)?;
        check_times(job)?;
        check_labels(job)?;
        check_flow_control(job)?;
        if job.parent == Some(job.id) {
            return Err(invalid("the parent", "is the job itself", "name the job that submits it"));
        }
        if job.parent_rev.is_some_and(|rev| rev != Rev::DETACHED) {
            let hint = "leave it out; the commit that submits a child sets it";
            return Err(invalid("the revision of the parent", "is given", hint));
        }
        if let Some(stage) = &job.stage {
            check_stage(stage)?;
        }
        if job.signals.len() > self.inbox {
            let why = format!("are {}, more than the {} an inbox holds", job.signals.len(), self.inbox);
            let hint = format!("send fewer, or {}", Limits::raise_hint("inbox"));
            return Err(invalid("the signals with the job", why, hint));
        }
        job.signals.iter().try_for_each(|signal| self.check_signal(signal))?;
        self.check_payload("input", &job.input.bytes)
    }
}

fn check_identity(job: &NewJob) -> Result<(), Invalid> {
    check_name("kind", &job.kind.kind)?;
    check_name("queue", &job.queue)?;
    if job.kind.version < 1 {
        let what = format!("version {} of kind {}", job.kind.version, quoted(&job.kind.kind));
        return Err(invalid(what, "is not positive", "count versions from 1"));
    }
    if let Some(key) = &job.key {
        if key.is_empty() {
            return Err(invalid("the key", "is empty", "leave it out, or give it a value"));
        }
        check_text("key", key, MAX_KEY_BYTES)?;
    }
    if job.priority.abs() > MAX_PRIORITY {
        let what = format!("priority {}", job.priority);
        let hint = format!("use one from -{MAX_PRIORITY} (urgent) to {MAX_PRIORITY} (least urgent)");
        return Err(invalid(what, "is out of range", hint));
    }
    Ok(())
}

fn check_times(job: &NewJob) -> Result<(), Invalid> {
    match job.when {
        When::At(at) if at > Time::MAX => {
            return Err(invalid("the due time", "is after the year 9999", "choose an earlier one"));
        }
        When::After(delay) if delay > MAX_DELAY => {
            return Err(invalid("the delay", "is longer than 100 years", "choose a shorter one"));
        }
        _ => {}
    }
    if job.deadline_at.is_some_and(|at| at > Time::MAX) {
        return Err(invalid("the deadline", "is after the year 9999", "choose an earlier one, or none"));
    }
    if job.settings.timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(invalid("the timeout", "is zero", "leave it out for none, or give the attempt time"));
    }
    Ok(())
}

/// Checks what the engine keeps for people and never interprets: tags, options and the trace.
fn check_labels(job: &NewJob) -> Result<(), Invalid> {
    if job.tags.len() > MAX_TAGS {
        let why = format!("are {}, more than the {MAX_TAGS} allowed", job.tags.len());
        return Err(invalid("the tags", why, "use fewer, or put details into the options"));
    }
    for tag in &job.tags {
        check_text("tag", tag, MAX_NAME_BYTES)?;
        if tag.is_empty() {
            return Err(invalid("a tag", "is empty", "leave it out"));
        }
        check_prefix("tag", tag, "choose another tag")?;
    }
    if let Some(options) = &job.options {
        check_text("options", options, MAX_OPTIONS_BYTES)?;
        if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(options) {
            return Err(invalid("the options", format!("are not JSON ({error})"), "pass a JSON value"));
        }
    }
    if let Some(traceparent) = &job.settings.trace
        && trace::parse(traceparent).is_none()
    {
        let hint = format!("pass the W3C header as it came, like {}", trace::EXAMPLE);
        return Err(invalid(format!("the trace {}", quoted(traceparent)), "is not a traceparent", hint));
    }
    Ok(())
}

/// Checks the unique name, the serial key and the rate limit. Only the store can check that the rate limit exists and that its
/// burst is not smaller than the weight.
fn check_flow_control(job: &NewJob) -> Result<(), Invalid> {
    if let Some(unique) = &job.settings.unique {
        check_key("unique key", &unique.key)?;
        if unique.scope.is_empty() {
            let hint = "name the states in which the job holds it, e.g. ready and running";
            return Err(invalid("the scope of the unique key", "has no states", hint));
        }
        if unique.within.is_some_and(|within| within.is_zero()) {
            return Err(invalid("the time of the unique key", "is zero", "leave it out, or make it longer"));
        }
    }
    if let Some(serial) = &job.settings.serial {
        check_key("serial key", &serial.key)?;
        check_slots(&serial.key, serial.slots)?;
    }
    if let Some(charge) = &job.settings.rate {
        check_name("rate limit", &charge.limit)?;
        if charge.weight == 0 || charge.weight > MAX_TOKENS {
            let what = format!("the weight under limit {}", quoted(&charge.limit));
            let why = if charge.weight == 0 { "is zero".into() } else { format!("is {}", charge.weight) };
            return Err(invalid(what, why, "give it one from 1 to the limit's burst"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Conflict, JobId, Payload, RateCharge, Serial, States, Unique};

    fn job() -> NewJob {
        NewJob::new(JobId::from_parts(1, 1, 1), "resize", "default", Payload::json(b"1".to_vec()))
    }

    fn unique(key: &str, scope: States) -> Option<Box<Unique>> {
        Some(Box::new(Unique { key: key.into(), scope, within: None, conflict: Conflict::Keep }))
    }

    fn serial(key: &str) -> Option<Box<Serial>> {
        Some(Box::new(Serial::new(key)))
    }

    #[test]
    fn each_fault_is_refused_with_a_hint() {
        type Break = fn(&mut NewJob);
        let cases: [(Break, &str); 21] = [
            (|j| j.kind.kind = String::new(), "the kind is empty"),
            (|j| j.kind.kind = "windlass.poll".into(), "reserved for the engine"),
            (|j| j.kind.kind = "a$b".into(), "contains '$'"),
            (|j| j.kind.version = 0, "count versions from 1"),
            (|j| j.queue = "a\0b".into(), "contains '\\0'"),
            (|j| j.queue = "q".repeat(129), "129 bytes long, more than the 128"),
            (|j| j.key = Some("k".repeat(1 << 20)), "1048576 bytes long, more than the 512"),
            (|j| j.key = Some("a\0".into()), "contains a NUL byte"),
            (|j| j.priority = 101, "from -100 (urgent) to 100"),
            (|j| j.when = When::After(Duration::MAX), "longer than 100 years"),
            (|j| j.when = When::At(Time(i64::MAX)), "after the year 9999"),
            (|j| j.tags = vec!["t".into(); 33], "more than the 32"),
            (|j| j.options = Some("{".into()), "not JSON"),
            (|j| j.settings.trace = Some("00-ab-cd-01".into()), "is not a traceparent; pass the W3C header"),
            (|j| j.input.bytes = vec![0; (1 << 20) + 1], "more than the 1048576 allowed"),
            (|j| j.settings.unique = unique("", States::LIVE), "the unique key is empty"),
            (|j| j.settings.unique = unique("a", States::of([])), "has no states"),
            (|j| j.settings.serial = serial("a\0"), "contains a NUL byte"),
            (|j| j.settings.serial = serial("windlass.x"), "reserved for the engine"),
            (|j| j.settings.rate = Some(Box::new(RateCharge::new("api").weight(0))), "is zero"),
            (|j| j.parent = Some(j.id), "is the job itself"),
        ];
        assert_eq!(Limits::default().check(&job()), Ok(()));
        for (break_it, text) in cases {
            let mut bad = job();
            break_it(&mut bad);
            let error = Limits::default().check(&bad).expect_err(text).to_string();
            assert!(error.contains(text), "{error:?} lacks {text:?}");
            assert!(error.len() < 300, "{error}");
        }
    }
}
