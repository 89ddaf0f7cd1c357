//! The jobs that every layout stores: the same ids, lanes, ranks and bytes in every run.

use std::time::{SystemTime, UNIX_EPOCH};

/// Jobs in one submitted batch.
pub(crate) const SUBMIT_BATCH: usize = 1_000;
/// Jobs in one claim.
pub(crate) const CLAIM_BATCH: usize = 500;
/// The only worker of the experiment.
pub(crate) const WORKER: i64 = 7;

/// 2025-01-01 in milliseconds since 1970: ids are made from a fixed clock, so that runs are alike.
const BASE_MS: u128 = 1_735_689_600_000;

/// A job's id, either a UUID version 7 or a 64-bit number in the low half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(pub(crate) u128);

/// Which ids a run gives to its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdKind {
    /// UUID version 7, 16 bytes.
    Uuid,
    /// A time-ordered 64-bit number.
    Number,
}

impl Id {
    /// The id of job `i`, with a thousand jobs in each millisecond of the made-up clock.
    fn of(kind: IdKind, i: usize, random: &mut fastrand::Rng) -> Self {
        let (ms, count) = (BASE_MS + i as u128 / 1_000, i as u128 % 1_000);
        match kind {
            IdKind::Uuid => {
                let tail = u128::from(random.u64(..) >> 2);
                Id(ms << 80 | 0x7 << 76 | count << 64 | 0b10 << 62 | tail)
            }
            IdKind::Number => Id((ms - BASE_MS + 1) << 22 | count),
        }
    }

    /// The id as a 64-bit number.
    pub(crate) fn number(self) -> i64 {
        self.0 as i64
    }
}

/// A job as it is submitted.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: Id,
    pub(crate) lane: i32,
    pub(crate) rank: i64,
    pub(crate) input: Vec<u8>,
    pub(crate) digest: Vec<u8>,
}

/// A job as a claim hands it to a worker.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) id: Id,
    pub(crate) lane: i32,
    pub(crate) rank: i64,
    pub(crate) epoch: i32,
    pub(crate) rev: i32,
    pub(crate) attempts: i32,
    pub(crate) input: Vec<u8>,
}

impl Claimed {
    /// The "work": a result of about 20 bytes, which depends on what was claimed.
    pub(crate) fn result(&self) -> Vec<u8> {
        debug_assert!(self.attempts >= 0 && self.lane > 0);
        format!("{{\"sum\":{:012}}}", self.rank % 1_000_000 + self.input.len() as i64).into_bytes()
    }
}

/// Makes `n` jobs, dealt to `lanes` lanes in turn, with ranks in the order of submission.
pub(crate) fn make(n: usize, lanes: i32, kind: IdKind) -> Vec<Job> {
    let mut random = fastrand::Rng::with_seed(42);
    (0..n)
        .map(|i| Job {
            id: Id::of(kind, i, &mut random),
            lane: 1 + i as i32 % lanes,
            rank: (BASE_MS as i64) * 1_000 + i as i64,
            input: format!("{{\"to\":\"user{:08}@example.org\",\"template\":\"welcome\"}}", random.u32(..))
                .into_bytes(),
            digest: random.u128(..).to_be_bytes().to_vec(),
        })
        .collect()
}

/// The wall clock in microseconds since 1970, the form in which the tables hold times.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_and_are_version_7() {
        for kind in [IdKind::Uuid, IdKind::Number] {
            let jobs = make(5_000, 3, kind);
            assert!(jobs.windows(2).all(|pair| pair[0].id.0 < pair[1].id.0));
        }
        let id = make(1, 1, IdKind::Uuid)[0].id.0;
        assert_eq!((id >> 76 & 0xf, id >> 62 & 0b11), (7, 0b10));
    }

    #[test]
    fn jobs_have_the_sizes_that_the_comparison_states() {
        let job = make(1, 1, IdKind::Uuid).remove(0);
        assert!((55..70).contains(&job.input.len()), "{}", job.input.len());
        let claimed = Claimed {
            id: job.id,
            lane: job.lane,
            rank: job.rank,
            epoch: 0,
            rev: 0,
            attempts: 1,
            input: job.input,
        };
        assert_eq!(claimed.result().len(), 20);
    }
}
