//! One page of a list: what to read next, and when it is complete.

use std::collections::VecDeque;

use windlass_model::JobId;

use super::{EXAMINED, Lead};
use crate::{Filter, JobPage, Summary};

/// How many jobs are compared at most with the filter at a time.
const LARGEST_CHUNK: usize = 2_500;
/// How many ids of periods are read at least at a time: each read begins with the periods.
const PERIOD_CHUNK: usize = 1_000;

/// What a walk needs next.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Action {
    /// The next ids of the lead: at most `limit`, below `before`.
    Read {
        /// All ids that were read are above it, or are this one.
        before: Option<JobId>,
        /// How many at most.
        limit: usize,
    },
    /// Which of these jobs match. They are sorted, the newest first.
    Match(Vec<JobId>),
    /// Nothing: it is complete.
    Finish,
}

/// Ids that were read.
#[derive(Default, Debug)]
pub(crate) struct Ids {
    /// Sorted, the newest first.
    pub(crate) ids: Vec<JobId>,
    /// All ids from this one on were read; `None` if the lead has no more.
    pub(crate) reached: Option<JobId>,
    /// How many entries were read for that.
    pub(crate) read: usize,
}

impl Ids {
    /// The ids that a read with a limit returned.
    pub(crate) fn of(mut ids: Vec<JobId>, limit: usize) -> Ids {
        let read = ids.len();
        let reached = ids.last().copied().filter(|_| read >= limit);
        ids.dedup();
        Ids { ids, reached, read }
    }
}

/// The state of a walk.
pub(crate) struct Walk {
    lead: Lead,
    /// How many matching jobs complete it.
    wanted: usize,
    /// How many entries it may still read.
    left: usize,
    /// How many jobs it compares next.
    chunk: usize,
    before: Option<JobId>,
    is_exhausted: bool,
    /// Ids that were read and not compared.
    pending: VecDeque<JobId>,
    found: Vec<Summary>,
}

impl Walk {
    /// A page of a list.
    pub(crate) fn list(filter: &Filter, lead: Lead) -> Walk {
        // One more than is wanted, to know whether there is another page.
        let wanted = filter.limit.saturating_add(1);
        let (left, chunk) = (wanted.max(EXAMINED), wanted.min(LARGEST_CHUNK));
        Walk { wanted, left, chunk, is_exhausted: filter.limit == 0, ..Walk::count(filter, lead, 0) }
    }

    /// All jobs among the first `most` entries of the lead.
    pub(crate) fn count(filter: &Filter, lead: Lead, most: usize) -> Walk {
        Walk {
            lead,
            wanted: usize::MAX,
            left: most,
            chunk: LARGEST_CHUNK,
            before: filter.ids().1,
            is_exhausted: false,
            pending: VecDeque::new(),
            found: Vec::new(),
        }
    }

    /// What it walks.
    pub(crate) fn lead(&self) -> Lead {
        self.lead
    }

    /// What it needs next.
    pub(crate) fn next(&mut self) -> Action {
        if self.found.len() >= self.wanted {
            return Action::Finish;
        }
        if !self.pending.is_empty() {
            let chunk = self.chunk.min(self.pending.len());
            self.chunk = self.chunk.saturating_mul(4).min(LARGEST_CHUNK);
            return Action::Match(self.pending.drain(..chunk).collect());
        }
        if self.is_exhausted || self.left == 0 {
            return Action::Finish;
        }
        let limit = match self.lead {
            lead if lead.is_sorted_when_read() => self.left.max(EXAMINED),
            Lead::Periods => self.left.min(self.chunk.max(PERIOD_CHUNK)),
            _ => self.left.min(self.chunk),
        };
        Action::Read { before: self.before, limit }
    }

    /// Takes the ids that it asked for.
    pub(crate) fn add_ids(&mut self, ids: Ids) {
        self.left = self.left.saturating_sub(ids.read.max(1));
        self.is_exhausted = ids.reached.is_none();
        self.before = ids.reached;
        self.pending.extend(ids.ids);
    }

    /// Takes the matching jobs of those that it asked for, the newest first.
    pub(crate) fn add_matching(&mut self, jobs: Vec<Summary>) {
        self.found.extend(jobs);
    }

    /// Whether it has seen all entries of the lead.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_exhausted && self.pending.is_empty()
    }

    /// The page, once it is finished.
    pub(crate) fn page(mut self) -> JobPage {
        let limit = self.wanted - 1;
        let next = match self.found.len() > limit {
            true => limit.checked_sub(1).map(|last| self.found[last].id),
            false if self.is_complete() => None,
            false => self.before,
        };
        self.found.truncate(limit);
        JobPage { jobs: self.found, next }
    }
}

#[cfg(test)]
mod tests {
    use windlass_model::{State, Time};

    use super::*;

    fn id(n: usize) -> JobId {
        JobId::from_parts(n as u64, 0, 0)
    }

    fn summary(id: JobId) -> Summary {
        let (kind, queue) = ("kind".into(), "queue".into());
        let (key, stage, reason, finished_at) = Default::default();
        let (submitted_at, due_at) = (Time(0), Time(0));
        let (state, version, priority, attempts) = (State::Ready, 1, 0, 0);
        Summary {
            id,
            kind,
            version,
            queue,
            key,
            state,
            stage,
            reason,
            priority,
            attempts,
            submitted_at,
            due_at,
            finished_at,
        }
    }

    /// Lists jobs 0 to `jobs`, of which every `nth` matches. Returns the pages, and how many jobs were compared.
    fn list(lead: Lead, jobs: usize, nth: usize, limit: usize) -> (Vec<Vec<usize>>, usize) {
        let (mut pages, mut compared) = (Vec::new(), 0);
        let mut filter = Filter { limit, ..Filter::default() };
        loop {
            let mut walk = Walk::list(&filter, lead);
            loop {
                match walk.next() {
                    Action::Read { before, limit } => {
                        let ids =
                            (0..jobs).rev().map(id).filter(|id| before.is_none_or(|before| *id < before));
                        walk.add_ids(Ids::of(ids.take(limit).collect(), limit));
                    }
                    Action::Match(ids) => {
                        compared += ids.len();
                        let matching = ids
                            .into_iter()
                            .filter(|id| ((id.made_at().micros() / 1_000) as usize).is_multiple_of(nth));
                        walk.add_matching(matching.map(summary).collect());
                    }
                    Action::Finish => break,
                }
            }
            let page = walk.page();
            pages.push(page.jobs.iter().map(|job| (job.id.made_at().micros() / 1_000) as usize).collect());
            match page.next {
                Some(next) => filter.before = Some(next),
                None => return (pages, compared),
            }
        }
    }

    #[test]
    fn pages_have_all_matching_jobs_in_order_and_end() {
        for lead in [Lead::All, Lead::Periods, Lead::Key] {
            for (jobs, nth, limit) in
                [(0, 1, 5), (10, 1, 5), (10, 1, 10), (11, 1, 5), (300, 7, 5), (3_000, 100, 7)]
            {
                let (pages, _) = list(lead, jobs, nth, limit);
                let expected: Vec<usize> = (0..jobs).rev().filter(|n| n % nth == 0).collect();
                assert_eq!(pages.concat(), expected, "{lead:?} {jobs} {nth} {limit}");
                // Few enough are examined here that only the last page may be short.
                let full = pages.iter().rev().skip(1).all(|page| page.len() == limit);
                assert!(full && pages.len() == expected.len().div_ceil(limit).max(1), "{pages:?}");
            }
        }
    }

    #[test]
    fn a_page_examines_a_bounded_number_of_jobs_and_goes_on_from_there() {
        let (pages, compared) = list(Lead::All, 25_000, 24_000, 5);
        assert_eq!(pages, [vec![24_000], vec![], vec![0]]);
        assert_eq!(compared, 25_000);
    }

    #[test]
    fn the_newest_of_many_matching_jobs_are_found_without_reading_the_others() {
        let mut filter = Filter { limit: 50, ..Filter::default() };
        let mut walk = Walk::list(&filter, Lead::All);
        assert_eq!(walk.next(), Action::Read { before: None, limit: 51 });
        walk.add_ids(Ids::of((0..51).rev().map(id).collect(), 51));
        let Action::Match(ids) = walk.next() else { panic!("ids are compared") };
        walk.add_matching(ids.into_iter().map(summary).collect());
        assert_eq!(walk.next(), Action::Finish);
        let page = walk.page();
        assert_eq!((page.jobs.len(), page.next), (50, Some(id(1))));
        filter.limit = 0;
        let mut none = Walk::list(&filter, Lead::All);
        assert_eq!((none.next(), none.page()), (Action::Finish, JobPage::default()));
    }

    #[test]
    fn a_read_that_finds_nothing_still_ends() {
        let mut walk = Walk::count(&Filter::default(), Lead::Periods, 3);
        for _ in 0..3 {
            assert!(matches!(walk.next(), Action::Read { .. }));
            walk.add_ids(Ids { ids: Vec::new(), reached: Some(id(7)), read: 0 });
        }
        assert_eq!(walk.next(), Action::Finish);
        assert!(!walk.is_complete());
    }
}
