//! Where job ids come from: UUID v7, strictly rising within a process.

use std::{
    sync::Mutex,
    time::{SystemTime, UNIX_EPOCH},
};

use windlass_model::{JobId, WorkerId};

/// Makes ids. One per process is enough; ids of several are still unique, by 56 random bits.
#[derive(Debug, Default)]
pub struct IdSource {
    last: Mutex<(u64, u32)>,
}

/// How many ids one millisecond holds before the next is borrowed.
const PER_MILLI: u32 = 1 << 18;

impl IdSource {
    /// A source that starts at the machine's clock.
    pub fn new() -> IdSource {
        IdSource::default()
    }

    /// One id, larger than every one made before it here, even if the clock was set back.
    pub fn job(&self) -> JobId {
        let millis = millis();
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

    /// A name for a worker that starts now.
    pub fn worker(&self) -> WorkerId {
        WorkerId::from_parts(millis(), fastrand::u32(..))
    }
}

fn millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_even_when_the_clock_stands_still() {
        let ids = IdSource::new();
        let mut last = ids.job();
        for _ in 0..1_000_000 {
            let next = ids.job();
            assert!(next > last);
            last = next;
        }
    }
}
