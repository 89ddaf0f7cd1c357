//! How much of something each client has at the same time: connections, streams. And the room for the bodies of all requests.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    error::{Error, ErrorKind},
    rate::network,
};

/// The room for bodies is counted in pieces of this size.
const PIECE: usize = 1 << 10;
/// Bodies up to this size take no room: the number of connections limits them, and large bodies that arrive slowly must not keep small requests
/// waiting.
const SMALL: usize = 64 << 10;
/// How many clients are remembered before those without a body are forgotten.
const REMEMBERED: usize = 1_024;

/// Counts what clients have.
pub(crate) struct PerClient {
    most: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// One that a client has.
pub(crate) struct Counted {
    of: Arc<PerClient>,
    client: IpAddr,
}

impl PerClient {
    /// Lets each client have `most` at the same time; 0 sets no limit.
    pub(crate) fn new(most: usize) -> Arc<PerClient> {
        Arc::new(PerClient { most, counts: Mutex::default() })
    }

    /// Counts one more of a client, unless it has the most. This machine's own clients have no limit: they can do what they want anyway.
    pub(crate) fn count(self: &Arc<Self>, client: IpAddr) -> Option<Counted> {
        let unlimited = self.most == 0 || client.is_loopback();
        let client = network(client);
        let mut counts = lock(&self.counts);
        let count = counts.entry(client).or_default();
        if *count >= self.most && !unlimited {
            return None;
        }
        *count += 1;
        Some(Counted { of: Arc::clone(self), client })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = lock(&self.of.counts);
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

/// Reads bodies, as many bytes at the same time as there is room for: in all, and for each client.
pub(crate) struct Bodies {
    all: Arc<Semaphore>,
    pieces: usize,
    pieces_per_client: usize,
    clients: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

/// The room that a body takes, for as long as its request is answered.
#[derive(Default)]
pub(crate) struct BodyRoom(Vec<OwnedSemaphorePermit>);

impl Bodies {
    /// Room for so many bytes, in all and of each client.
    pub(crate) fn new(all: usize, per_client: usize) -> Bodies {
        let [pieces, pieces_per_client] =
            [all, per_client].map(|bytes| bytes.div_ceil(PIECE).clamp(1, u32::MAX as usize));
        let (all, clients) = (Arc::new(Semaphore::new(pieces)), Mutex::default());
        Bodies { all, pieces, pieces_per_client, clients }
    }

    /// Reads a body as soon as there is room for it, unless it is too large or too slow. One whose length is declared waits for room before
    /// any of it is read; another takes room as it arrives.
    pub(crate) async fn read(
        &self,
        body: Body,
        limit: usize,
        client: IpAddr,
        timeout: Duration,
    ) -> Result<(Bytes, BodyRoom), Error> {
        use axum::body::HttpBody;
        let mut room = BodyRoom::default();
        let declared = body.size_hint().exact().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if declared.is_some_and(|declared| declared > limit) {
            return Err(too_large(limit));
        }
        let of_client = self.of_client(client);
        if let Some(declared) = declared.filter(|declared| *declared > SMALL) {
            self.take(&mut room, &of_client, declared).await?;
        }
        let mut body = Limited::new(body, limit);
        let (mut read, mut length) = (Vec::new(), 0);
        let frames = async {
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                    true => too_large(limit),
                    false => Error::invalid(format!("the body cannot be read: {error}"), "send it again"),
                })?;
                let Ok(data) = frame.into_data() else { continue };
                length += data.len();
                if declared.is_none() && length > SMALL {
                    self.take(&mut room, &of_client, data.len()).await?;
                }
                read.push(data);
            }
            Ok::<(), Error>(())
        };
        match tokio::time::timeout(timeout, frames).await {
            Ok(ended) => ended?,
            Err(_) => {
                let message = format!("the body did not arrive within {timeout:?}");
                return Err(Error::new(ErrorKind::SlowBody, message, "send it faster, or in parts"));
            }
        }
        Ok((if read.len() == 1 { read.remove(0) } else { read.concat().into() }, room))
    }

    async fn take(&self, room: &mut BodyRoom, of_client: &Arc<Semaphore>, bytes: usize) -> Result<(), Error> {
        for (semaphore, most) in [(of_client, self.pieces_per_client), (&self.all, self.pieces)] {
            // One body must always find room.
            let pieces = u32::try_from(bytes.div_ceil(PIECE).min(most)).unwrap_or(u32::MAX);
            let taken = Arc::clone(semaphore).acquire_many_owned(pieces).await;
            room.0.push(taken.map_err(|error| Error::internal(&error))?);
        }
        Ok(())
    }

    /// The room of one client, which is forgotten when nothing is in it.
    fn of_client(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut clients = lock(&self.clients);
        if clients.len() >= REMEMBERED {
            clients.retain(|_, room| room.strong_count() > 0);
        }
        let known = clients.entry(network(client)).or_default();
        known.upgrade().unwrap_or_else(|| {
            let room = Arc::new(Semaphore::new(self.pieces_per_client));
            *known = Arc::downgrade(&room);
            room
        })
    }
}

fn too_large(limit: usize) -> Error {
    let message = format!("the body has more than {limit} bytes");
    Error::new(ErrorKind::TooLarge, message, "send less with one request")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt, stream};

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_client_has_at_most_so_many_and_this_machine_any_number() {
        let counts = PerClient::new(2);
        let first = counts.count(ip("10.0.0.1")).expect("the first");
        let _second = counts.count(ip("10.0.0.1")).expect("the second");
        assert!(counts.count(ip("10.0.0.1")).is_none());
        assert!(counts.count(ip("10.0.0.2")).is_some(), "another client");
        let local: Vec<_> = (0..9).map(|_| counts.count(ip("127.0.0.1")).expect("local")).collect();
        drop((first, local));
        assert!(counts.count(ip("10.0.0.1")).is_some());
        assert_eq!(lock(&counts.counts).len(), 1, "who has nothing is forgotten");
        let any = PerClient::new(0);
        assert_eq!((0..99).filter_map(|_| any.count(ip("10.0.0.1"))).count(), 99);
    }

    /// A body of unknown length that never ends.
    fn endless(first: usize) -> Body {
        let begin = stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![0; first]))]);
        Body::from_stream(begin.chain(stream::pending()))
    }

    fn bytes(count: usize) -> Body {
        Body::from(vec![1; count])
    }

    const MB: usize = 1 << 20;

    #[tokio::test]
    async fn bodies_wait_for_room_and_no_client_takes_all_of_it() {
        let bodies = Bodies::new(4 * MB, MB);
        let read = |body: Body, client: &str| {
            bodies.read(body, 2 * MB, ip(client), Duration::from_millis(10)).now_or_never()
        };
        let (first, room) = read(bytes(MB), "10.0.0.1").expect("room").expect("read");
        assert_eq!(first.len(), MB);
        assert!(read(bytes(MB / 2), "10.0.0.1").is_none(), "the client has no room left");
        assert!(read(bytes(SMALL), "10.0.0.1").is_some(), "a small one needs none");
        assert!(read(bytes(MB / 2), "10.0.0.2").is_some(), "another client has some");
        drop(room);
        assert!(read(bytes(MB / 2), "10.0.0.1").is_some());
        assert!(read(bytes(2 * MB), "10.0.0.1").is_some(), "larger than a client's room");
        for (body, expected) in [
            (bytes(2 * MB + 1), ErrorKind::TooLarge),
            (endless(2 * MB + 1), ErrorKind::TooLarge),
            (endless(1), ErrorKind::SlowBody),
        ] {
            let read = bodies.read(body, 2 * MB, ip("10.0.0.3"), Duration::from_millis(10));
            assert_eq!(read.await.err().expect("refused").kind(), expected);
        }
    }

    #[tokio::test]
    async fn slow_bodies_hold_their_room_for_a_limited_time() {
        let bodies = Arc::new(Bodies::new(2 * MB, MB));
        let slow = |client: &'static str| {
            let (bodies, timeout) = (Arc::clone(&bodies), Duration::from_millis(50));
            tokio::spawn(async move { bodies.read(endless(MB), 2 * MB, ip(client), timeout).await.is_ok() })
        };
        let held = [slow("10.0.0.1"), slow("10.0.0.2")];
        while bodies.all.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let small = bodies.read(bytes(SMALL), MB, ip("10.0.0.3"), Duration::from_secs(20));
        assert!(small.now_or_never().is_some(), "a small one does not wait for them");
        let third = bodies.read(bytes(MB), 2 * MB, ip("10.0.0.3"), Duration::from_secs(20));
        assert!(third.await.is_ok(), "when the slow ones were given up");
        for slow in held {
            assert!(!slow.await.expect("no panic"));
        }
    }
}
