//! How large things may be, and which names are taken.
//!
//! Every door (submit, bulk submit, and later SQL, HTTP and branches) checks with [`Limits::check`], so that
//! nothing a store would choke on gets that far, and the error says what to do.

use std::time::Duration;

use crate::{
    BranchUpdate, Change, JournalEntry, NewJob, NewSignal, Outcome, Step, Time, When, rank::MAX_PRIORITY,
    rate::MAX_TOKENS, serial::MAX_SLOTS, trace,
};

pub use crate::limit_settings::Limits;

/// The longest kind, queue or tag, in bytes: long enough for a path of names, short enough to print.
pub const MAX_NAME_BYTES: usize = 128;
/// The longest key, in bytes: a database index holds at most some 2,700, and a longer key wants hashing.
pub const MAX_KEY_BYTES: usize = 512;
/// The most tags of one job.
pub const MAX_TAGS: usize = 32;
/// The longest `options` text, in bytes: they are read with every listing.
pub const MAX_OPTIONS_BYTES: usize = 16 << 10;
/// The longest error message kept, in bytes; longer ones are cut in the middle of nowhere, and say so.
pub const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// The longest delay: a hundred years.
pub const MAX_DELAY: Duration = Duration::from_secs(100 * 365 * 86_400);
/// The most children that one step may submit: they are put in by the transaction that commits the step.
pub const MAX_CHILDREN: usize = 10_000;
/// The most bytes of payload that changes or jobs are batched to: a few large ones must not make a transaction as slow as
/// thousands.
pub const MAX_BATCH_BYTES: usize = 16 << 20;
/// What names of the engine's own kinds, queues and tags begin with.
pub const RESERVED_PREFIX: &str = "windlass.";

/// Why something was not taken: what, why, and what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} {why}; {hint}")]
pub struct Invalid {
    /// Which part was wrong, with its value where that is short.
    pub what: String,
    /// What is wrong with it.
    pub why: String,
    /// What to do.
    pub hint: String,
}

pub(crate) fn invalid(what: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Invalid {
    Invalid { what: what.into(), why: why.into(), hint: hint.into() }
}

/// Shows a value in an error without flooding the terminal.
pub(crate) fn quoted(value: &str) -> String {
    let mut short: String = value.chars().take(40).collect();
    if short.len() < value.len() {
        short.push('…');
    }
    format!("{short:?}")
}

/// Checks the name of a kind or a queue (`what` says which).
pub fn check_name(what: &str, name: &str) -> Result<(), Invalid> {
    if name.is_empty() {
        return Err(invalid(format!("the {what}"), "is empty", "give it a name"));
    }
    if name.len() > MAX_NAME_BYTES {
        let why = format!("is {} bytes long, more than the {MAX_NAME_BYTES} allowed", name.len());
        return Err(invalid(format!("the {what} {}", quoted(name)), why, "choose a shorter name"));
    }
    if let Some(bad) = name.chars().find(|c| c.is_control() || c.is_whitespace() || *c == '$') {
        let why = format!("contains {bad:?}");
        let hint = "use letters, digits and punctuation other than $, which separates names of children";
        return Err(invalid(format!("the {what} {}", quoted(name)), why, hint));
    }
    if name.starts_with(RESERVED_PREFIX) {
        let why = format!("begins with {RESERVED_PREFIX:?}, which is reserved for the engine");
        return Err(invalid(format!("the {what} {}", quoted(name)), why, "choose another name"));
    }
    Ok(())
}

/// Checks free text: how long it is, and that it holds no NUL (`what` says what it is).
pub fn check_text(what: &str, text: &str, most: usize) -> Result<(), Invalid> {
    if text.len() > most {
        let why = format!("is {} bytes long, more than the {most} allowed", text.len());
        return Err(invalid(format!("the {what} {}", quoted(text)), why, "shorten it, or use a hash of it"));
    }
    if text.contains('\0') {
        return Err(invalid(format!("the {what} {}", quoted(text)), "contains a NUL byte", "remove it"));
    }
    Ok(())
}

impl Limits {
    /// Checks an encoded input or output (`what` says which).
    pub fn check_payload(&self, what: &str, bytes: &[u8]) -> Result<(), Invalid> {
        if bytes.len() <= self.payload {
            return Ok(());
        }
        let why = format!("is {} bytes long, more than the {} allowed", bytes.len(), self.payload);
        let hint =
            format!("keep large data elsewhere and pass a reference, or {}", Limits::raise_hint("payload"));
        Err(invalid(format!("the {what}"), why, hint))
    }

    /// Checks the size of a value in the context of a workflow, as plain JSON.
    pub fn check_context(&self, name: &str, bytes: usize) -> Result<(), Invalid> {
        if bytes <= self.context {
            return Ok(());
        }
        let why = format!("is {bytes} bytes long, more than the {} allowed", self.context);
        let hint =
            format!("keep it elsewhere and set a reference to it, or {}", Limits::raise_hint("context"));
        Err(invalid(format!("the value {} of the context", quoted(name)), why, hint))
    }

    /// Checks all of a job that is about to be submitted.
    pub fn check(&self, job: &NewJob) -> Result<(), Invalid> {
        if job.branch_position.is_some() {
            let hint = "leave it out; children of a branch are submitted by the steps of its job";
            return Err(invalid("the place in a branch", "is given with a submit", hint));
        }
        self.check_job(job)
    }

    fn check_job(&self, job: &NewJob) -> Result<(), Invalid> {
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
        if job.tags.len() > MAX_TAGS {
            let why = format!("are {}, more than the {MAX_TAGS} allowed", job.tags.len());
            return Err(invalid("the tags", why, "use fewer, or put details into the options"));
        }
        for tag in &job.tags {
            check_text("tag", tag, MAX_NAME_BYTES)?;
            if tag.is_empty() {
                return Err(invalid("a tag", "is empty", "leave it out"));
            }
            if tag.starts_with(RESERVED_PREFIX) {
                let why = format!("begins with {RESERVED_PREFIX:?}, which is reserved for the engine");
                return Err(invalid(format!("the tag {}", quoted(tag)), why, "choose another tag"));
            }
        }
        if let Some(options) = &job.options {
            check_text("options", options, MAX_OPTIONS_BYTES)?;
            if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(options) {
                return Err(invalid("the options", format!("are not JSON ({error})"), "pass a JSON value"));
            }
        }
        if job.settings.timeout.is_some_and(|t| t.is_zero()) {
            return Err(invalid("the timeout", "is zero", "leave it out for none, or give the attempt time"));
        }
        if let Some(parent) = &job.settings.trace
            && trace::parse(parent).is_none()
        {
            let hint = format!("pass the W3C header as it came, like {}", trace::EXAMPLE);
            return Err(invalid(format!("the trace {}", quoted(parent)), "is not a traceparent", hint));
        }
        check_flow(job)?;
        if job.parent_rev.is_some() {
            let hint = "leave it out; a step's children are counted by the commit that submits them";
            return Err(invalid("the round", "is the store's to set", hint));
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

    /// Checks a signal that is about to be sent.
    pub fn check_signal(&self, signal: &NewSignal) -> Result<(), Invalid> {
        signal.check()?;
        self.check_payload("payload of the signal", &signal.payload.bytes)
    }

    /// Checks what a change wants written, as far as it could be refused for its size or its names.
    pub fn check_change(&self, change: &Change) -> Result<(), Invalid> {
        match &change.outcome {
            Outcome::Done(output) => self.check_payload("output", &output.bytes)?,
            Outcome::Wait(wait) => wait.check()?,
            _ => {}
        }
        let Some(step) = &change.step else { return Ok(()) };
        let (bytes, most) = (change.bytes(), self.step);
        if bytes > most {
            let why = format!("have {bytes} bytes together, more than the {most} that one commit may write");
            let hint = format!("spread them over several steps, or {}", Limits::raise_hint("step"));
            return Err(invalid("the payloads of one step", why, hint));
        }
        if let Some((stage, data)) = &step.stage {
            check_stage(stage)?;
            self.check_payload("data of the state", &data.bytes)?;
        }
        if step.children.len() > MAX_CHILDREN {
            let why = format!("are {}, more than the {MAX_CHILDREN} one step may have", step.children.len());
            return Err(invalid("the children", why, "spread them over several steps"));
        }
        step.entries.iter().try_for_each(|entry| self.check_entry(entry))?;
        for (name, value) in &step.context {
            check_key("name in the context", name)?;
            self.check_payload(&format!("value of {} in the context", quoted(name)), &value.bytes)?;
        }
        step.branches.iter().try_for_each(BranchUpdate::check)?;
        let promoted: u32 =
            step.promoted.iter().filter_map(|job| Some(job.branch_position.as_ref()?.items)).sum();
        let left = change.branch_member.map_or(0, |counted| counted.items);
        if step.items.saturating_add(promoted) > left {
            let why = format!("are {}, more than the {left} left", step.items.saturating_add(promoted));
            return Err(invalid(
                "the items of a block that were accounted for",
                why,
                "count each of them once",
            ));
        }
        let branch = change.branch_member.map(|counted| counted.branch);
        if step
            .promoted
            .iter()
            .any(|job| job.branch_position.as_ref().is_none_or(|twig| Some(twig.branch) != branch))
        {
            return Err(invalid("a promoted item", "is not in the branch of its block", "leave it there"));
        }
        if step.promoted.iter().any(|job| job.settings.unique.is_some()) {
            let hint = "leave it out; one that is not put in would be missed for good";
            return Err(invalid("the unique name of a promoted item", "is given", hint));
        }
        self.check_first_attempts(step)?;
        step.children.iter().chain(&step.promoted).try_for_each(|child| {
            child.branch_position.as_ref().map_or(Ok(()), |twig| twig.check())?;
            self.check_child(child)
        })
    }

    fn check_first_attempts(&self, step: &Step) -> Result<(), Invalid> {
        let what = "the first attempt at a promoted item";
        let mut jobs = step.attempted_jobs();
        if jobs.len() < step.first_attempts.len() {
            return Err(invalid(what, "is given twice", "give it once"));
        }
        let ends_well = |outcome: &Outcome| {
            !matches!(outcome, Outcome::Retry { .. } | Outcome::Failed { .. } | Outcome::Cancelled(_))
        };
        if step.first_attempts.iter().any(|attempt| ends_well(&attempt.outcome)) {
            return Err(invalid(what, "did not fail", "count the item as done instead"));
        }
        let is_one = |job: &&NewJob| {
            !job.needs_slow_path() && job.branch_position.as_ref().is_some_and(|twig| twig.items == 1)
        };
        step.promoted.iter().filter(is_one).for_each(|job| _ = jobs.remove(&job.id));
        match jobs.is_empty() {
            true => Ok(()),
            false => Err(invalid(what, "is of none that is promoted by itself", "promote it with that item")),
        }
    }

    fn check_child(&self, child: &NewJob) -> Result<(), Invalid> {
        if child.branch_position.is_some() && child.key.is_some() {
            let hint = "leave it out; such a child is known by its branch and its item";
            return Err(invalid("the key of a child of a branch", "is given", hint));
        }
        self.check_job(child)
    }

    fn check_entry(&self, entry: &JournalEntry) -> Result<(), Invalid> {
        // What is kept of undoing a call has a longer name than the call.
        check_text("name of the call", &entry.name, MAX_NAME_BYTES + 8)?;
        if let Some(key) = &entry.key {
            check_text("key of the call", key, MAX_KEY_BYTES)?;
        }
        self.check_payload(&format!("result of {} {}", entry.op, quoted(&entry.name)), &entry.payload.bytes)
    }
}

/// Checks what keeps a job out or back: unique name, serial key, rate limit. That the limit exists and its burst is
/// not smaller than the weight is for the store to see.
fn check_flow(job: &NewJob) -> Result<(), Invalid> {
    if let Some(unique) = &job.settings.unique {
        check_key("unique key", &unique.key)?;
        if unique.scope.is_empty() {
            let hint = "name the states in which the job is to have it, e.g. ready and running";
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
    if job.parent == Some(job.id) {
        return Err(invalid("the parent", "is the job itself", "name the job that submits it"));
    }
    Ok(())
}

/// Checks the name of a machine's stage: that of a variant, whatever characters it has.
pub fn check_stage(stage: &str) -> Result<(), Invalid> {
    if stage.is_empty() {
        return Err(invalid("the name of the state", "is empty", "give the variant a name"));
    }
    check_text("name of the state", stage, MAX_NAME_BYTES)
}

/// Checks how many slots a serial key is to have.
pub fn check_slots(key: &str, slots: Option<u32>) -> Result<(), Invalid> {
    match slots {
        Some(slots) if slots == 0 || slots > MAX_SLOTS => {
            let what = format!("the slots of serial key {}", quoted(key));
            let hint = format!("use 1 to {MAX_SLOTS}; to stop its jobs, pause them");
            Err(invalid(what, format!("are {slots}"), hint))
        }
        _ => Ok(()),
    }
}

/// Checks a key that must be there if it is named.
pub fn check_key(what: &str, key: &str) -> Result<(), Invalid> {
    if key.is_empty() {
        return Err(invalid(format!("the {what}"), "is empty", "leave it out, or give it a value"));
    }
    if key.starts_with(RESERVED_PREFIX) {
        let why = format!("begins with {RESERVED_PREFIX:?}, which is reserved for the engine");
        return Err(invalid(format!("the {what} {}", quoted(key)), why, "choose another key"));
    }
    check_text(what, key, MAX_KEY_BYTES)
}

/// An error message as it is kept: without NUL, which PostgreSQL's text cannot hold, and not longer than
/// [`MESSAGE`].
pub fn clean_message(text: &str) -> String {
    let mut clean = if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text.to_owned() };
    if clean.len() > MAX_MESSAGE_BYTES {
        let mut end = MAX_MESSAGE_BYTES;
        while !clean.is_char_boundary(end) {
            end -= 1;
        }
        let whole = clean.len();
        clean.truncate(end);
        clean.push_str(&format!(" … (cut; {whole} bytes in all)"));
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobId, Payload};

    fn job() -> NewJob {
        NewJob::new(JobId::from_parts(1, 1, 1), "resize", "default", Payload::json(b"1".to_vec()))
    }

    fn scope(key: &str, scope: crate::States) -> Option<Box<crate::Unique>> {
        let conflict = crate::Conflict::Keep;
        Some(Box::new(crate::Unique { key: key.into(), scope, within: None, conflict }))
    }

    fn charge(weight: u32) -> Option<Box<crate::RateCharge>> {
        Some(Box::new(crate::RateCharge { limit: "api".into(), weight }))
    }

    #[test]
    fn each_fault_is_named_with_what_to_do() {
        type Spoil = fn(&mut NewJob);
        let cases: [(Spoil, &str); 21] = [
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
            (|j| j.settings.unique = scope("", crate::States::LIVE), "the unique key is empty"),
            (|j| j.settings.unique = scope("a", crate::States::of([])), "has no states"),
            (|j| j.settings.serial = Some(Box::new(crate::Serial::new("a\0"))), "contains a NUL byte"),
            (
                |j| j.settings.serial = Some(Box::new(crate::Serial::new("windlass.x"))),
                "reserved for the engine",
            ),
            (|j| j.settings.rate = charge(0), "is zero"),
            (|j| j.parent = Some(j.id), "is the job itself"),
        ];
        assert_eq!(Limits::default().check(&job()), Ok(()));
        for (spoil, text) in cases {
            let mut bad = job();
            spoil(&mut bad);
            let error = Limits::default().check(&bad).expect_err(text).to_string();
            assert!(error.contains(text), "{error:?} lacks {text:?}");
            assert!(error.len() < 300, "{error}");
        }
    }

    #[test]
    fn messages_are_cut_at_a_character_and_lose_their_nul() {
        assert_eq!(clean_message("a\0b"), "a\u{fffd}b");
        let long = clean_message(&"é".repeat(MAX_MESSAGE_BYTES));
        assert!(long.len() < MAX_MESSAGE_BYTES + 64 && long.contains("32768 bytes in all"));
    }
}
