//! Identifiers: job ids, worker ids, claim numbers, epochs and revisions.
//!
//! Every write of an attempt names all of them. The epoch fences writers whose claim has ended, the revision makes a commit
//! repeatable, and the claim number makes a claim repeatable.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::Time;

/// The id of a job: a UUID v7. The submitter makes it, so that the store recognises a submit that is repeated because its
/// answer was lost. Ids sort by the time they were made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub uuid::Uuid);

impl JobId {
    /// Makes an id from a clock reading in milliseconds, a counter that orders ids of the same millisecond (its low 18 bits
    /// are used), and 56 random bits.
    pub fn from_parts(millis: u64, counter: u32, random: u64) -> JobId {
        let counter = u128::from(counter & 0x3_ffff);
        let bits = (u128::from(millis & 0xffff_ffff_ffff) << 80)
            | (0x7 << 76)
            | ((counter >> 6) << 64)
            | (0b10 << 62)
            | ((counter & 0x3f) << 56)
            | u128::from(random & 0x00ff_ffff_ffff_ffff);
        JobId(uuid::Uuid::from_u128(bits))
    }

    /// Returns the id that an item of a packed branch has once it is promoted to a job. The same item always has the same id.
    /// Its timestamp is that of the parent.
    pub fn of_item(parent: JobId, branch: crate::BranchNo, spawn: i16, item: &str) -> JobId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(parent.as_bytes());
        hasher.update(&branch.0.to_le_bytes());
        hasher.update(&spawn.to_le_bytes());
        hasher.update(item.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        bytes[..6].copy_from_slice(&parent.as_bytes()[..6]);
        bytes[6] = (bytes[6] & 0x0f) | 0x70;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        JobId::from_bytes(bytes)
    }

    /// Returns the id that a job has which a request creates: of one request and subject always the same. Its timestamp is that of the
    /// request, whose id its sender has drawn.
    pub fn of_request(request: JobId, action: &str, subject: &str) -> JobId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(request.as_bytes());
        for text in [action, subject] {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        bytes[..6].copy_from_slice(&request.as_bytes()[..6]);
        bytes[6] = (bytes[6] & 0x0f) | 0x70;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        JobId::from_bytes(bytes)
    }

    /// Returns the lowest id that can be made at a time or, since ids count milliseconds, at the next full millisecond: of all ids, those
    /// made before `at` are below it. Times outside of what ids can express become the first and the last of these.
    pub fn lowest_at(at: Time) -> JobId {
        let millis = at.micros().max(0).unsigned_abs().div_ceil(1_000).min(0xffff_ffff_ffff);
        JobId(uuid::Uuid::from_u128(u128::from(millis) << 80))
    }

    /// Returns when it was made, by the clock of its submitter in full milliseconds.
    pub fn made_at(self) -> Time {
        let millis = (self.0.as_u128() >> 80) as u64;
        Time(i64::try_from(millis * 1_000).unwrap_or(i64::MAX))
    }

    /// Returns the 16 bytes, which sort as ids do.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// Makes an id from its 16 bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> JobId {
        JobId(uuid::Uuid::from_bytes(bytes))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for JobId {
    type Err = String;

    fn from_str(text: &str) -> Result<JobId, String> {
        uuid::Uuid::try_parse(text).map(JobId).map_err(|e| {
            format!("{text:?} is not a job id ({e}); ids look like 0199f0c2-6f7a-7000-8000-000000000000")
        })
    }
}

/// The id of a worker: one start of one process. Every start makes a new id. Shown as `w` and hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub i64);

impl WorkerId {
    /// Makes an id from a clock reading in milliseconds and 20 random bits. If two starts in the same millisecond draw the same
    /// bits, the store refuses the second, which must draw again.
    pub fn from_parts(millis: u64, random: u32) -> WorkerId {
        WorkerId((((millis & 0x7ff_ffff_ffff) << 20) | u64::from(random & 0xf_ffff)) as i64)
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{:x}", self.0)
    }
}

impl fmt::Debug for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for WorkerId {
    type Err = String;

    fn from_str(text: &str) -> Result<WorkerId, String> {
        let digits =
            text.strip_prefix('w').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let id = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        id.map(|id| WorkerId(id as i64))
            .ok_or_else(|| format!("{text:?} is not the id of a worker; ids look like w199f0c26f7a01234"))
    }
}

impl Serialize for WorkerId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WorkerId {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<WorkerId, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The fencing number of a job. The store raises it whenever a claim ends and the job may run again, and whenever somebody else than
/// its attempt ends or changes the job. So of all claims ever made on a job only the newest can write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub i32);

/// The number of changes committed for a job. Only a commit raises it; a fork starts at 1, for the copied journal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rev(pub i32);

impl Rev {
    /// As a child's `parent_rev`: the end of the child is sent to its parent as a signal instead of being counted.
    pub const SIGNALLED: Rev = Rev(-1);
    /// Of a child that a commit submits: its end is not reported to the parent. It is never stored.
    pub const DETACHED: Rev = Rev(-2);
}

/// A worker's number for one of its claims, counted from 1. A claim that is repeated under the same number returns the same
/// jobs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClaimNo(pub i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_millisecond_then_counter_and_are_version_7() {
        let older = JobId::from_parts(1_000, 0x3_ffff, u64::MAX);
        let newer = JobId::from_parts(1_001, 0, 0);
        assert!(older < newer);
        for counter in [0, 1, 62, 63, 64, 65, 4_095, 0x3_fffe] {
            let a = JobId::from_parts(5, counter, u64::MAX);
            let b = JobId::from_parts(5, counter + 1, 0);
            assert!(a < b, "{counter}");
            assert_eq!(a.0.get_version_num(), 7);
            assert_eq!(a.0.get_variant(), uuid::Variant::RFC4122);
        }
    }

    #[test]
    fn a_time_divides_the_ids_made_before_it_from_the_others() {
        let made = |millis| JobId::from_parts(millis, 0x3_ffff, u64::MAX);
        let at = JobId::lowest_at(Time(5_000_000));
        assert!(made(4_999) < at && at <= JobId::from_parts(5_000, 0, 0));
        // A time between two milliseconds: ids of the earlier one were made before it.
        let between = JobId::lowest_at(Time(5_000_001));
        assert!(made(5_000) < between && between <= JobId::from_parts(5_001, 0, 0));
        assert_eq!(made(5_000).made_at(), Time(5_000_000));
        assert_eq!(JobId::lowest_at(Time(-1)), JobId::lowest_at(Time(0)));
        assert!(made(1 << 40) < JobId::lowest_at(Time(i64::MAX)));
    }

    #[test]
    fn a_request_makes_one_id_for_each_subject() {
        let [request, other] = [7, 8].map(|counter| JobId::from_parts(5_000, counter, 9));
        let id = JobId::of_request(request, "fork", "a");
        assert_eq!(JobId::of_request(request, "fork", "a"), id);
        let others = [
            JobId::of_request(other, "fork", "a"),
            JobId::of_request(request, "trigger", "a"),
            JobId::of_request(request, "fork", "b"),
            JobId::of_request(request, "for", "ka"),
        ];
        assert!(others.iter().all(|other| *other != id));
        assert_eq!((id.made_at(), id.0.get_version_num()), (request.made_at(), 7));
        assert_eq!(id.0.get_variant(), uuid::Variant::RFC4122);
        assert!(id >= JobId::lowest_at(request.made_at()));
    }

    #[test]
    fn ids_of_workers_parse_from_their_text() {
        for id in [WorkerId::from_parts(1_763_500_000_000, 77), WorkerId(0), WorkerId(-1), WorkerId(i64::MAX)]
        {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for bad in ["", "w", "1f", "w1g", "w+1", "w-1", "w11112222333344445"] {
            assert!(bad.parse::<WorkerId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_parse_from_their_text_and_other_text_is_refused() {
        assert!("12".parse::<JobId>().unwrap_err().contains("not a job id"));
        let id = JobId::from_parts(1, 2, 3);
        assert_eq!(id.to_string().parse::<JobId>(), Ok(id));
    }
}
