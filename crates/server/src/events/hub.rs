//! The poller that all streams share, and the ring of its latest events.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast, watch};
use windlass::{Engine, JobId, store::JobEnd};

use crate::error::{Error, ErrorKind};

/// The most jobs that one stream watches.
pub(crate) const MAX_JOBS: usize = 100;
/// The most jobs that all streams watch: one statement reads their ends.
const MAX_WATCHED: usize = 10_000;
/// How often the store is polled. Each poll is at most two statements.
const INTERVAL: Duration = Duration::from_secs(1);
/// Every how many polls the names of all queues are read, in place of their gates, for streams that watch all queues.
const NAMES_EVERY: u64 = 10;
/// The same while a stream watches a queue that no job has been in yet: to ask for its gate would make the store look for its name each
/// time.
const NAMES_EVERY_FOR_UNKNOWN: u64 = 2;
/// How many events are kept for streams that fall behind or connect again.
const RING: usize = 1_024;

/// What a stream is about.
pub(crate) struct Interest {
    /// The queues whose gates it watches; `None` for all.
    pub(crate) queues: Option<Vec<String>>,
    /// The jobs whose ends it waits for.
    pub(crate) jobs: Vec<JobId>,
}

/// Something that has changed.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Which process made it, and its number there: `Last-Event-ID`.
    id: (u64, u64),
    change: Change,
}

#[derive(Clone, Debug)]
enum Change {
    Gate { queue: Arc<str>, version: u64 },
    Job { job: JobId, state: &'static str },
}

impl Event {
    /// As it is sent.
    pub(super) fn to_text(&self) -> String {
        let (name, data): (&str, Value) = match &self.change {
            Change::Gate { queue, version } => ("gate", json!({ "queue": &**queue, "version": version })),
            Change::Job { job, state } => ("job", json!({ "job": job, "state": state })),
        };
        format!("id: {:x}-{}\nevent: {name}\ndata: {data}\n\n", self.id.0, self.id.1)
    }
}

/// The poller's state and the streams' way to it.
pub(crate) struct Hub {
    engine: Engine,
    stopping: watch::Receiver<bool>,
    state: Mutex<State>,
    sender: broadcast::Sender<Event>,
    /// A stream was opened.
    opened: Notify,
}

struct State {
    process: u64,
    /// The number of the last event.
    last: u64,
    recent: VecDeque<Event>,
    gates: BTreeMap<Arc<str>, u64>,
    /// The names of all queues, as they were last read.
    all_queues: Vec<String>,
    watches: Watches,
}

/// What a poll reads.
#[derive(PartialEq, Eq, Debug)]
struct Reads {
    /// The names of all queues. Then no gates are read.
    names: bool,
    /// The queues whose gates are read. A job has been in each of them.
    queues: Vec<String>,
    /// The jobs that may have ended.
    jobs: Vec<JobId>,
}

/// What open streams watch, with how many of them do.
#[derive(Default)]
struct Watches {
    streams: usize,
    all_queues: usize,
    queues: HashMap<String, usize>,
    jobs: HashMap<JobId, JobWatch>,
    /// The number of the last watch of a job.
    last: u64,
}

/// A watch of a job by one stream or several. It ends with the job, or with the last of its streams; who watches the job again begins another
/// one.
struct JobWatch {
    /// Its number: by it a stream that ends tells its own watch from a later one.
    number: u64,
    streams: usize,
}

impl Hub {
    /// A hub whose poller runs until the server stops.
    pub(crate) fn new(engine: Engine, stopping: watch::Receiver<bool>) -> Arc<Hub> {
        let state = State {
            process: engine.new_id().0.as_u64_pair().0,
            last: 0,
            recent: VecDeque::new(),
            gates: BTreeMap::new(),
            all_queues: Vec::new(),
            watches: Watches::default(),
        };
        let (sender, _) = broadcast::channel(RING);
        let hub = Arc::new(Hub { engine, stopping, state: Mutex::new(state), sender, opened: Notify::new() });
        tokio::spawn(Arc::clone(&hub).run());
        hub
    }

    pub(super) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls while there are streams.
    async fn run(self: Arc<Hub>) {
        let mut stopping = self.stopping.clone();
        let polls = async {
            for number in 0.. {
                while self.lock().watches.streams == 0 {
                    self.opened.notified().await;
                }
                if let Err(error) = self.tick(number).await {
                    tracing::debug!(%error, "events cannot be read; trying again");
                }
                tokio::time::sleep(INTERVAL).await;
            }
        };
        tokio::select! {
            () = polls => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }

    /// One poll: reads gates (or now and then the names of queues) and ends of jobs, and publishes what has changed.
    async fn tick(&self, number: u64) -> Result<(), windlass::store::Error> {
        let Reads { names, queues, jobs } = self.lock().to_read(number);
        if names {
            let names = self.engine.inspect().queues().await?;
            self.lock().all_queues = names.into_iter().map(|queue| queue.name).collect();
        } else if !queues.is_empty() {
            let versions = self.engine.store().gates(&queues).await?;
            let mut state = self.lock();
            for event in state.gates_read(&queues, &versions) {
                let _ = self.sender.send(event);
            }
        }
        if !jobs.is_empty() {
            let ends = self.engine.store().job_ends(&jobs).await?;
            let mut state = self.lock();
            for event in state.ends_read(&jobs, ends) {
                let _ = self.sender.send(event);
            }
        }
        Ok(())
    }

    /// Publishes that a gate has this version, as a poll does.
    #[cfg(test)]
    pub(super) fn gate_moved(&self, queue: &str, version: u64) {
        let mut state = self.lock();
        for event in state.gates_read(&[queue.to_owned()], &[version]) {
            let _ = self.sender.send(event);
        }
    }

    /// Opens a stream. Returns the events after `last_id`; `None` if some of them are not known any more.
    pub(super) fn subscribe(
        self: &Arc<Hub>,
        interest: Interest,
        last_id: Option<&str>,
    ) -> Result<(Subscription, Option<Vec<Event>>), Error> {
        let mut state = self.lock();
        if state.watches.jobs.len() + interest.jobs.len() > MAX_WATCHED {
            let message = format!("streams watch {MAX_WATCHED} jobs already, which is the most");
            return Err(Error::new(
                ErrorKind::Unavailable,
                message,
                "watch queues, or ask for results with `wait`",
            ));
        }
        let watched = state.watches.add(&interest);
        let receiver = self.sender.subscribe();
        let events = state.events_after(last_id);
        drop(state);
        self.opened.notify_one();
        let (hub, ended) = (Arc::clone(self), Vec::new());
        let mut subscription = Subscription { hub, interest, watched, ended, receiver };
        let events =
            events.map(|events| events.into_iter().filter(|event| subscription.wants(event)).collect());
        Ok((subscription, events))
    }
}

impl State {
    /// What a poll reads: at most two of names, gates and ends of jobs.
    fn to_read(&self, number: u64) -> Reads {
        let wants_all = self.watches.all_queues > 0;
        let is_known = |queue: &&String| self.all_queues.contains(queue);
        let has_unknown = !self.watches.queues.keys().all(|queue| is_known(&queue));
        let names = (wants_all && (self.all_queues.is_empty() || number.is_multiple_of(NAMES_EVERY)))
            || (has_unknown && number.is_multiple_of(NAMES_EVERY_FOR_UNKNOWN));
        let queues = if wants_all {
            self.all_queues.clone()
        } else {
            let mut queues: Vec<String> = self.watches.queues.keys().filter(is_known).cloned().collect();
            queues.sort();
            queues
        };
        Reads { names, queues, jobs: self.watches.jobs.keys().copied().collect() }
    }

    fn publish(&mut self, change: Change) -> Event {
        self.last += 1;
        let event = Event { id: (self.process, self.last), change };
        self.recent.push_back(event.clone());
        if self.recent.len() > RING {
            self.recent.pop_front();
        }
        event
    }

    fn gates_read(&mut self, queues: &[String], versions: &[u64]) -> Vec<Event> {
        let mut events = Vec::new();
        for (queue, version) in queues.iter().zip(versions) {
            if self.gates.get(queue.as_str()) != Some(version) {
                let queue: Arc<str> = Arc::from(queue.as_str());
                self.gates.insert(Arc::clone(&queue), *version);
                events.push(self.publish(Change::Gate { queue, version: *version }));
            }
        }
        events
    }

    fn ends_read(&mut self, jobs: &[JobId], ends: Vec<Option<JobEnd>>) -> Vec<Event> {
        let mut events = Vec::new();
        for (job, end) in jobs.iter().zip(ends) {
            let state = match end {
                None => continue,
                Some(JobEnd::Done(_)) => "done",
                Some(JobEnd::Failed { .. }) => "failed",
                Some(JobEnd::Cancelled(_)) => "cancelled",
                Some(_) => "gone",
            };
            self.watches.jobs.remove(job);
            events.push(self.publish(Change::Job { job: *job, state }));
        }
        events
    }

    /// The events after the one with this id; `None` if some may be missing.
    fn events_after(&self, last_id: Option<&str>) -> Option<Vec<Event>> {
        let Some(id) = last_id else { return Some(Vec::new()) };
        let (process, number) = id.split_once('-')?;
        let process = u64::from_str_radix(process, 16).ok()?;
        let number: u64 = number.parse().ok()?;
        let first_kept = self.last + 1 - self.recent.len() as u64;
        if process != self.process || number > self.last || number + 1 < first_kept {
            return None;
        }
        Some(self.recent.iter().filter(|event| event.id.1 > number).cloned().collect())
    }
}

impl Watches {
    /// Adds a stream. Returns the numbers of the watches of its jobs.
    fn add(&mut self, interest: &Interest) -> Vec<(JobId, u64)> {
        self.streams += 1;
        match &interest.queues {
            None => self.all_queues += 1,
            Some(queues) => {
                queues.iter().for_each(|queue| *self.queues.entry(queue.clone()).or_default() += 1)
            }
        }
        let watch = |job: &JobId| {
            let watch = self.jobs.entry(*job).or_insert_with(|| {
                self.last += 1;
                JobWatch { number: self.last, streams: 0 }
            });
            watch.streams += 1;
            (*job, watch.number)
        };
        interest.jobs.iter().map(watch).collect()
    }

    fn remove(&mut self, interest: &Interest, watched: &[(JobId, u64)]) {
        self.streams -= 1;
        match &interest.queues {
            None => self.all_queues -= 1,
            Some(queues) => {
                for queue in queues {
                    if let Some(count) = self.queues.get_mut(queue) {
                        *count -= 1;
                        if *count == 0 {
                            self.queues.remove(queue);
                        }
                    }
                }
            }
        }
        for (job, number) in watched {
            let Some(watch) = self.jobs.get_mut(job).filter(|watch| watch.number == *number) else {
                continue;
            };
            watch.streams -= 1;
            if watch.streams == 0 {
                self.jobs.remove(job);
            }
        }
    }
}

/// What one stream watches. Dropping it ends that.
pub(super) struct Subscription {
    hub: Arc<Hub>,
    interest: Interest,
    /// The numbers of the watches of its jobs.
    watched: Vec<(JobId, u64)>,
    /// Jobs whose end it has sent.
    ended: Vec<JobId>,
    pub(super) receiver: broadcast::Receiver<Event>,
}

impl Subscription {
    /// Whether the stream sends an event.
    pub(super) fn wants(&mut self, event: &Event) -> bool {
        match &event.change {
            Change::Gate { queue, .. } => self.wants_queue(queue),
            Change::Job { job, .. } if self.interest.jobs.contains(job) && !self.ended.contains(job) => {
                self.ended.push(*job);
                true
            }
            Change::Job { .. } => false,
        }
    }

    fn wants_queue(&self, queue: &str) -> bool {
        self.interest.queues.as_ref().is_none_or(|queues| queues.iter().any(|known| known == queue))
    }

    /// The version of the next gate after a queue, by name, as it was last read.
    pub(super) fn next_gate(&self, after: Option<&Arc<str>>) -> Option<(Arc<str>, Event)> {
        let state = self.hub.lock();
        let from = after.map_or(Bound::Unbounded, |queue| Bound::Excluded(Arc::clone(queue)));
        let mut gates = state.gates.range((from, Bound::Unbounded));
        let (queue, version) = gates.find(|(queue, _)| self.wants_queue(queue))?;
        let change = Change::Gate { queue: Arc::clone(queue), version: *version };
        Some((Arc::clone(queue), Event { id: (state.process, state.last), change }))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.lock().watches.remove(&self.interest, &self.watched);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state(known: &[&str], watched: &[&str], all: usize) -> State {
        let watches = Watches {
            streams: 1,
            all_queues: all,
            queues: watched.iter().map(|queue| ((*queue).to_owned(), 1)).collect(),
            ..Watches::default()
        };
        let all_queues = known.iter().map(ToString::to_string).collect();
        let (recent, gates) = (VecDeque::new(), BTreeMap::new());
        State { process: 1, last: 0, recent, gates, all_queues, watches }
    }

    #[tokio::test]
    async fn a_stream_that_ends_takes_nobody_elses_watch_of_a_job_with_it() {
        let engine = Engine::open("memory:").await.expect("an engine");
        let (_stop, stopping) = watch::channel(false);
        let hub = Hub::new(engine, stopping);
        let job = JobId::from_parts(1, 1, 1);
        let open = || {
            let interest = Interest { queues: Some(Vec::new()), jobs: vec![job, job] };
            hub.subscribe(interest, None).expect("a subscription").0
        };
        let end = || {
            let end = Some(JobEnd::Done(Default::default()));
            hub.lock().ends_read(&[job], vec![end]).len()
        };
        let watched = || hub.lock().to_read(1).jobs;
        let first = open();
        assert_eq!((watched(), end()), (vec![job], 1));
        assert!(watched().is_empty(), "it has ended");
        // It was retried, and is watched again before the first stream has read of its end.
        let (second, third) = (open(), open());
        drop(first);
        assert_eq!(watched(), [job], "the second still watches it");
        drop(second);
        assert_eq!(watched(), [job], "and the third");
        drop(third);
        assert!(watched().is_empty());
        assert_eq!(hub.lock().watches.streams, 0);
    }

    #[test]
    fn the_gate_of_an_unknown_queue_is_not_read_and_its_name_is_looked_for_now_and_then() {
        let reads = |state: &State, number| {
            let Reads { names, queues, .. } = state.to_read(number);
            (names, queues)
        };
        let unknown = state(&["a"], &["b", "a"], 0);
        assert_eq!(reads(&unknown, 2), (true, vec!["a".to_owned()]));
        assert_eq!(reads(&unknown, 3), (false, vec!["a".to_owned()]));
        let known = state(&["a", "b", "c"], &["b", "a"], 0);
        assert_eq!(reads(&known, 2), (false, vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(reads(&known, NAMES_EVERY), (false, vec!["a".to_owned(), "b".to_owned()]));
        let all = state(&["a", "c"], &["a"], 1);
        assert_eq!(reads(&all, 3), (false, vec!["a".to_owned(), "c".to_owned()]));
        assert!(reads(&all, NAMES_EVERY).0 && reads(&state(&[], &[], 1), 3).0);
    }

    proptest! {
        #[test]
        fn no_last_event_id_breaks_a_stream(
            text in "([0-9a-f]{0,17}-[0-9]{0,21}|1-[0-9]{1,2}|\\PC{0,20})",
            last in 0_u64..30,
            kept in 0_u64..20,
        ) {
            let kept = kept.min(last);
            let event = |number| Event { id: (1, number), change: Change::Gate { queue: "q".into(), version: number } };
            let recent = (last - kept + 1..=last).map(event).collect();
            let state = State { last, recent, ..state(&[], &[], 0) };
            if let Some(events) = state.events_after(Some(&text)) {
                // The id of an event of this process: all after it are known.
                let (process, number) = text.split_once('-').expect("an id");
                prop_assert_eq!(u64::from_str_radix(process, 16), Ok(1));
                let number: u64 = number.parse().expect("a number");
                let numbers: Vec<u64> = events.iter().map(|event| event.id.1).collect();
                prop_assert_eq!(numbers, (number + 1..=last).collect::<Vec<u64>>());
            }
        }
    }
}
