//! Where ids come from: UUID v7 for jobs, which rise within a process.

use std::sync::Mutex;

use windlass_model::{JobId, WorkerId};

use crate::Env;

/// Makes ids. One per process is enough; ids of several are still unique, by 56 random bits.
#[derive(Debug, Default)]
pub struct IdSource {
    env: Env,
    /// The millisecond and the counter of the last id.
    last: Mutex<(u64, u32)>,
}

/// How many ids one millisecond holds before the next is borrowed.
const PER_MILLI: u32 = 1 << 18;

impl IdSource {
    /// A source that starts at the clock of `env`.
    pub fn new(env: Env) -> IdSource {
        IdSource { env, last: Mutex::default() }
    }

    /// One id, larger than every one made before it here, even if the clock was set back.
    pub fn job(&self) -> JobId {
        let millis = self.millis();
        let mut last = self.last.lock().unwrap_or_else(|e| e.into_inner());
        if millis > last.0 {
            *last = (millis, 0);
        } else {
            last.1 += 1;
            if last.1 == PER_MILLI {
                *last = (last.0 + 1, 0);
            }
        }
        JobId::from_parts(last.0, last.1, fastrand::u64(..))
    }

    /// An id for a worker that starts now.
    pub fn worker(&self) -> WorkerId {
        WorkerId::from_parts(self.millis(), fastrand::u32(..))
    }

    fn millis(&self) -> u64 {
        (self.env.now().micros() / 1_000).max(0).unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_model::Time;

    use super::*;
    use crate::VirtualClock;

    #[test]
    fn ids_rise_even_when_the_clock_stands_still() {
        let ids = IdSource::new(Env::with_clock(Arc::new(VirtualClock::new(Time(1_000_000)))));
        let mut last = ids.job();
        for _ in 0..1_000_000 {
            let next = ids.job();
            assert!(next > last);
            last = next;
        }
    }
}
