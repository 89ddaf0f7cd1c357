//! Reads that pages share: a value is read at most once in a span of time, however many pages ask for it.

use std::{
    future::Future,
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

use std::collections::HashMap;
use tokio::sync::Mutex;

/// The most keys whose values are kept. Beyond, those are forgotten that are too old to be used, and then all.
const MAX_KEYS: usize = 1_000;

/// Values by key, each of which is used for a while.
pub(crate) struct Cache<K, V> {
    /// For how long a value is used.
    keep: Duration,
    /// A lock per key: of several that ask at once, one reads and the others wait for it.
    slots: std::sync::Mutex<HashMap<K, Arc<Slot<V>>>>,
}

type Slot<V> = Mutex<Option<(Instant, Arc<V>)>>;

impl<K: Hash + Eq + Clone, V> Cache<K, V> {
    /// A cache whose values are used for this long.
    pub(crate) fn new(keep: Duration) -> Cache<K, V> {
        Cache { keep, slots: std::sync::Mutex::default() }
    }

    /// The value of a key: the last one, if it is young enough, or else what `read` returns. An error is not kept.
    pub(crate) async fn get<F, E>(&self, key: &K, read: impl FnOnce() -> F) -> Result<Arc<V>, E>
    where
        F: Future<Output = Result<V, E>>,
    {
        let slot = self.slot(key);
        let mut slot = slot.lock().await;
        if let Some((at, value)) = &*slot
            && at.elapsed() < self.keep
        {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(read().await?);
        *slot = Some((Instant::now(), Arc::clone(&value)));
        Ok(value)
    }

    /// Forgets all values: somebody has changed what they say.
    pub(crate) fn clear(&self) {
        // Who is reading one keeps it for themselves.
        self.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
    }

    fn slot(&self, key: &K) -> Arc<Slot<V>> {
        let mut slots = self.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if slots.len() >= MAX_KEYS && !slots.contains_key(key) {
            // A slot that is locked is being read.
            slots.retain(|_, slot| match slot.try_lock() {
                Ok(slot) => slot.as_ref().is_some_and(|(at, _)| at.elapsed() < self.keep),
                Err(_) => true,
            });
            if slots.len() >= MAX_KEYS {
                slots.clear();
            }
        }
        Arc::clone(slots.entry(key.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[tokio::test]
    async fn those_that_ask_at_once_share_one_read() {
        let (cache, reads) = (Cache::new(Duration::from_secs(3_600)), AtomicUsize::new(0));
        let read = async || {
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(reads.fetch_add(1, Ordering::Relaxed))
        };
        let (one, two) = tokio::join!(cache.get(&1, read), cache.get(&1, read));
        assert_eq!((*one.expect("a value"), *two.expect("a value")), (0, 0));
        assert_eq!(*cache.get(&2, read).await.expect("a value"), 1, "another key");
    }

    #[tokio::test]
    async fn an_old_value_and_an_error_are_read_again() {
        let cache = Cache::new(Duration::ZERO);
        assert_eq!(*cache.get(&1, async || Ok::<_, ()>(1)).await.expect("a value"), 1);
        assert_eq!(cache.get(&1, async || Err::<i32, _>(())).await, Err(()));
        assert_eq!(*cache.get(&1, async || Ok::<_, ()>(3)).await.expect("a value"), 3);
    }

    #[tokio::test]
    async fn what_was_cleared_is_read_again() {
        let cache = Cache::new(Duration::from_secs(3_600));
        assert_eq!(*cache.get(&1, async || Ok::<_, ()>(1)).await.expect("a value"), 1);
        cache.clear();
        assert_eq!(*cache.get(&1, async || Ok::<_, ()>(2)).await.expect("a value"), 2);
    }

    #[tokio::test]
    async fn the_number_of_keys_is_bounded() {
        let cache = Cache::new(Duration::from_secs(3_600));
        for key in 0..3 * MAX_KEYS {
            let _ = cache.get(&key, async || Ok::<_, ()>(key)).await;
        }
        assert!(cache.slots.lock().expect("a lock").len() <= MAX_KEYS);
    }
}
