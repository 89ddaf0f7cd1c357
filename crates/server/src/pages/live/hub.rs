//! Live updates: pages that are open somewhere are rendered again when the store has changed, and each browser gets what is new to it.
//!
//! Pages are rendered for a *view*: a page with its query, for readers who see the same. However many browsers have a view open, it is rendered
//! once. One small read a second finds out whether anything has changed; then, of every kind of page, the view that has waited longest is
//! rendered. So the reads of a second do not grow with the number of open pages. While nothing changes, one view after the other is
//! rendered slowly, for what depends on the time alone.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, watch};
use windlass::JobId;

use super::fragments::Fragments;
use crate::{
    call::Call,
    error::Error,
    pages::page::{Page, rendered},
    server::Shared,
};

/// How often the store is asked whether anything has changed, and the shortest time between two renderings of a kind of page.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often one view is rendered although nothing has changed. A page has about five reads, so this costs a read every four seconds.
const IDLE_INTERVAL: Duration = Duration::from_secs(20);
/// The most views at the same time. A browser that opens another has no live updates.
const MAX_VIEWS: usize = 2_000;
/// The most jobs whose changes are asked for by name.
const MAX_JOBS: usize = 1_000;

/// What a stream is told.
#[derive(Clone, Debug)]
pub(crate) enum Update {
    /// The page as it is now.
    Rendered(Arc<Fragments>),
    /// It could not be rendered: the store does not answer.
    Stale,
    /// It cannot be rendered any more: what it shows is gone, or its reader may not see it any more.
    Over,
}

/// All views that are open.
pub(crate) struct Hub {
    state: Mutex<State>,
    /// A view was opened.
    opened: Notify,
}

#[derive(Default)]
struct State {
    views: HashMap<String, View>,
    last_digest: Option<u64>,
    /// When a view was last rendered although nothing had changed.
    idle_rendered_at: Option<Instant>,
}

struct View {
    /// Renders it: a request like the first one.
    call: Call,
    page: &'static Page,
    /// The job that it shows, if it shows one.
    job: Option<JobId>,
    /// Since when it has been out of date.
    stale_since: Option<Instant>,
    rendered_at: Instant,
    updates: watch::Sender<Update>,
}

/// A view that has to be rendered.
struct Due {
    key: String,
    call: Call,
    page: &'static Page,
}

impl Hub {
    /// A hub without views.
    pub(crate) fn new() -> Arc<Hub> {
        Arc::new(Hub { state: Mutex::default(), opened: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The updates of a view, which is opened with this rendering if it is not open. `None` if too many are.
    pub(crate) fn watch(
        &self,
        key: String,
        call: Call,
        page: &'static Page,
        job: Option<JobId>,
        first: Fragments,
    ) -> Option<watch::Receiver<Update>> {
        let mut state = self.lock();
        state.views.retain(|_, view| !view.updates.is_closed());
        let updates = match state.views.get(&key) {
            Some(view) => view.updates.subscribe(),
            None if state.views.len() >= MAX_VIEWS => return None,
            None => {
                let (updates, receiver) = watch::channel(Update::Rendered(Arc::new(first)));
                let view = View { call, page, job, stale_since: None, rendered_at: Instant::now(), updates };
                state.views.insert(key, view);
                receiver
            }
        };
        drop(state);
        self.opened.notify_one();
        Some(updates)
    }

    /// Renders views until the server stops.
    pub(crate) async fn run(self: Arc<Hub>, shared: Arc<Shared>) {
        let ticks = async {
            loop {
                while self.lock().is_empty() {
                    self.opened.notified().await;
                }
                self.tick(&shared, Instant::now()).await;
                tokio::time::sleep(INTERVAL).await;
            }
        };
        tokio::select! {
            () = ticks => {}
            () = shared.stopped() => {}
        }
        // They hold what this server's requests share.
        self.lock().views.clear();
    }

    /// One pass: asks what has changed, and renders what is due.
    async fn tick(&self, shared: &Shared, now: Instant) {
        let jobs = self.lock().jobs();
        let changed = match pulse(shared, &jobs).await {
            Ok(digest) => self.lock().note(digest, now),
            Err(error) => {
                tracing::debug!(error = error.text(), "changes cannot be read; trying again");
                self.lock().tell_all(&Update::Stale);
                return;
            }
        };
        let due = self.lock().due(changed, now);
        for Due { key, call, page } in due {
            let update = match rendered(page, call).await {
                Ok(html) => Update::Rendered(Arc::new(Fragments::of(&html))),
                Err(error) if error.is_temporary() => Update::Stale,
                Err(_) => Update::Over,
            };
            self.lock().rendered(&key, update);
        }
    }
}

/// A number that moves when something that people see has changed.
async fn pulse(shared: &Shared, jobs: &[JobId]) -> Result<u64, Error> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let pulse = shared.engine.inspect().pulse(jobs).await?;
    let mut hasher = DefaultHasher::new();
    pulse.store.hash(&mut hasher);
    pulse.jobs.hash(&mut hasher);
    Ok(hasher.finish())
}

impl State {
    fn is_empty(&self) -> bool {
        self.views.values().all(|view| view.updates.is_closed())
    }

    /// The jobs that views show.
    fn jobs(&self) -> Vec<JobId> {
        let jobs: HashSet<JobId> = self.views.values().filter_map(|view| view.job).collect();
        jobs.into_iter().take(MAX_JOBS).collect()
    }

    /// Notes a digest. Returns whether it is another one.
    fn note(&mut self, digest: u64, now: Instant) -> bool {
        let changed = self.last_digest.replace(digest).is_some_and(|last| last != digest);
        if changed {
            for view in self.views.values_mut() {
                view.stale_since.get_or_insert(now);
            }
        }
        changed
    }

    /// The views to render now: of each page the one that has been out of date longest, or else now and then the oldest of all.
    fn due(&mut self, changed: bool, now: Instant) -> Vec<Due> {
        self.views.retain(|_, view| !view.updates.is_closed());
        let mut longest: HashMap<&'static str, (Instant, &String)> = HashMap::new();
        for (key, view) in &self.views {
            if let Some(since) = view.stale_since {
                let of_page = longest.entry(view.page.path).or_insert((since, key));
                *of_page = (*of_page).min((since, key));
            }
        }
        let mut keys: Vec<String> = longest.into_values().map(|(_, key)| key.clone()).collect();
        let is_idle = keys.is_empty() && !changed;
        if is_idle && self.idle_rendered_at.is_none_or(|at| now.duration_since(at) >= IDLE_INTERVAL) {
            let oldest = self.views.iter().min_by_key(|(_, view)| view.rendered_at);
            keys.extend(
                oldest
                    .filter(|(_, view)| now.duration_since(view.rendered_at) >= IDLE_INTERVAL)
                    .map(|(key, _)| key.clone()),
            );
            self.idle_rendered_at = Some(now);
        }
        let due = |key: String| {
            let view = self.views.get_mut(&key)?;
            (view.stale_since, view.rendered_at) = (None, now);
            Some(Due { call: view.call.again(), page: view.page, key })
        };
        keys.into_iter().filter_map(due).collect()
    }

    fn rendered(&mut self, key: &str, update: Update) {
        let Some(view) = self.views.get(key) else { return };
        let is_over = matches!(update, Update::Over);
        view.updates.send_replace(update);
        if is_over {
            self.views.remove(key);
        }
    }

    fn tell_all(&self, update: &Update) {
        for view in self.views.values() {
            view.updates.send_replace(update.clone());
        }
    }
}
