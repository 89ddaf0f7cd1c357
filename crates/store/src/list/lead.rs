//! Which index a list walks.

use windlass_model::{JobCounts, State};

use super::SORTED;
use crate::{Filter, columns::is_selected, intern::Lane};

/// What a list walks. All but the last six have their jobs in the order of ids. Those six are short when they are chosen: they are read as a
/// whole, and sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lead {
    /// All jobs.
    All,
    /// All jobs of the periods in which any of the lanes that match were submitted.
    Periods,
    /// The jobs with the tag.
    Tag,
    /// The jobs that failed or were cancelled.
    Unsuccessful,
    /// Those whose error has the class.
    ErrorClass,
    /// Those that were in the stage.
    UnsuccessfulStage,
    /// The parked jobs in the stage.
    ParkedStage,
    /// The jobs with the key, one of each kind at most.
    Key,
    /// The jobs whose keys have the prefix.
    KeyPrefix,
    /// The ready set, the lines of serial keys, and all jobs that are held.
    Ready,
    /// All timers that make jobs ready.
    Timers,
    /// All claims.
    Claims,
    /// All parked jobs.
    Parked,
}

impl Lead {
    /// Whether it is read as a whole.
    pub(crate) fn is_sorted_when_read(self) -> bool {
        use Lead::*;
        matches!(self, Key | KeyPrefix | Ready | Timers | Claims | Parked)
    }

    /// What could lead a list with this filter: each has all jobs that match.
    fn candidates(filter: &Filter) -> Vec<Lead> {
        let mut found = Vec::new();
        if filter.key.is_some() {
            return vec![Lead::Key];
        }
        let mut add = |lead, is_given: bool| {
            if is_given {
                found.push(lead);
            }
        };
        let is_unsuccessful = matches!(filter.state, Some(State::Failed | State::Cancelled));
        let (is_waiting, has_stage) = (filter.state == Some(State::Waiting), filter.stage.is_some());
        add(Lead::ErrorClass, filter.error_class.is_some());
        add(Lead::UnsuccessfulStage, has_stage && is_unsuccessful);
        add(Lead::ParkedStage, has_stage && is_waiting);
        add(Lead::Tag, filter.tag.is_some());
        add(Lead::Claims, filter.state == Some(State::Running));
        add(Lead::Ready, filter.state == Some(State::Ready));
        add(Lead::Timers, filter.state == Some(State::Scheduled));
        add(Lead::Parked, is_waiting && !has_stage);
        add(Lead::KeyPrefix, filter.key_prefix.as_deref().and_then(key_range).is_some());
        add(Lead::Unsuccessful, is_unsuccessful && !has_stage && filter.error_class.is_none());
        add(Lead::Periods, selects_lanes(filter));
        add(Lead::All, true);
        found
    }

    /// Chooses the index of a list. If that takes knowing how long some of them are, it asks for these sizes, each once.
    pub(crate) fn choose(filter: &Filter, sizes: &Sizes) -> Result<Lead, Vec<Lead>> {
        let mut candidates = Lead::candidates(filter);
        // A walk of all jobs finds whatever another one finds, but not sooner.
        let is_part = |lead: &Lead| !lead.is_sorted_when_read() && *lead != Lead::All;
        if candidates.iter().any(|lead| is_part(lead) && *lead != Lead::Periods) {
            candidates.retain(|lead| *lead != Lead::All);
        }
        // Claims are few.
        if candidates.contains(&Lead::Claims) {
            return Ok(Lead::Claims);
        }
        if let [only] = candidates[..] {
            return Ok(only);
        }
        let unknown: Vec<Lead> =
            candidates.iter().copied().filter(|lead| sizes.of(*lead).is_none()).collect();
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let size = |lead: Lead| sizes.of(lead).unwrap_or(u64::MAX);
        candidates.retain(|lead| !lead.is_sorted_when_read() || size(*lead) <= SORTED);
        let best = candidates.into_iter().min_by_key(|lead| size(*lead)).unwrap_or(Lead::All);
        // Lanes with most of the jobs have some in nearly every period.
        match best {
            Lead::Periods if size(Lead::Periods) > size(Lead::All) / 2 => Ok(Lead::All),
            best => Ok(best),
        }
    }
}

/// Whether a filter selects lanes.
fn selects_lanes(filter: &Filter) -> bool {
    filter.kind.is_some() || filter.queue.is_some() || filter.version.is_some()
}

/// How many entries a walk of some indexes has, as far as that was asked for.
#[derive(Clone, Default, Debug)]
pub(crate) struct Sizes(Vec<(Lead, u64)>);

impl Sizes {
    /// Up to how many entries are counted where their number is not maintained: one more than are ever sorted.
    pub(crate) const COUNTED: u64 = SORTED + 1;

    pub(crate) fn of(&self, lead: Lead) -> Option<u64> {
        self.0.iter().find(|(known, _)| *known == lead).map(|(_, size)| *size)
    }

    pub(crate) fn add(&mut self, lead: Lead, size: u64) {
        self.0.push((lead, size));
    }

    /// Whether the number of entries follows from the maintained counts of jobs.
    pub(crate) fn is_maintained(lead: Lead) -> bool {
        matches!(lead, Lead::All | Lead::Periods | Lead::Unsuccessful | Lead::Ready | Lead::Parked)
    }

    /// Adds the sizes that follow from the maintained counts of all lanes.
    pub(crate) fn add_maintained<'a>(
        &mut self,
        filter: &Filter,
        lanes: impl Iterator<Item = (&'a Lane, JobCounts)>,
    ) {
        let mut all = JobCounts::default();
        let mut selected = JobCounts::default();
        for (lane, counts) in lanes {
            all = all.plus(counts);
            if is_selected(filter, lane) {
                selected = selected.plus(counts);
            }
        }
        let jobs = |counts: JobCounts| counts.live + counts.done + counts.failed + counts.cancelled;
        let unsuccessful = match filter.state {
            Some(State::Cancelled) => all.cancelled,
            _ => all.failed,
        };
        for (lead, size) in [
            (Lead::All, jobs(all)),
            (Lead::Periods, jobs(selected)),
            (Lead::Unsuccessful, unsuccessful),
            (Lead::Ready, all.live - all.scheduled - all.waiting),
            (Lead::Parked, all.waiting),
        ] {
            self.add(lead, u64::try_from(size).unwrap_or(0));
        }
    }
}

/// The keys that begin with a prefix, in the order of bytes: from the first text on, and below the second. `None` if the prefix excludes
/// too little to be worth it: it is empty, or there is no text above it.
pub(crate) fn key_range(prefix: &str) -> Option<(&str, String)> {
    let mut above: Vec<char> = prefix.chars().collect();
    while let Some(last) = above.pop() {
        let next = match last {
            char::MAX => continue,
            // Between these two are no characters.
            '\u{d7ff}' => '\u{e000}',
            last => char::from_u32(u32::from(last) + 1)?,
        };
        above.push(next);
        return Some((prefix, above.into_iter().collect()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(filter: &Filter, known: &[(Lead, u64)]) -> Result<Lead, Vec<Lead>> {
        let mut sizes = Sizes::default();
        known.iter().for_each(|(lead, size)| sizes.add(*lead, *size));
        Lead::choose(filter, &sizes)
    }

    fn text() -> Option<String> {
        Some("text".into())
    }

    fn in_state(state: State) -> Filter {
        Filter { state: Some(state), ..Filter::default() }
    }

    #[test]
    fn one_condition_with_an_index_needs_no_sizes() {
        for (filter, lead) in [
            (Filter::default(), Lead::All),
            (Filter { top: true, ..Filter::default() }, Lead::All),
            (in_state(State::Done), Lead::All),
            (Filter { tag: text(), ..Filter::default() }, Lead::Tag),
            (Filter { tag: text(), key: text(), kind: text(), ..Filter::default() }, Lead::Key),
            (Filter { error_class: text(), ..Filter::default() }, Lead::ErrorClass),
            (in_state(State::Failed), Lead::Unsuccessful),
            (in_state(State::Running), Lead::Claims),
            (Filter { kind: text(), queue: text(), ..in_state(State::Running) }, Lead::Claims),
            (Filter { stage: text(), ..Filter::default() }, Lead::All),
        ] {
            assert_eq!(choose(&filter, &[]), Ok(lead), "{filter:?}");
        }
    }

    #[test]
    fn of_several_indexes_the_one_with_the_fewest_entries_leads() {
        let filter = Filter { tag: text(), kind: text(), ..in_state(State::Failed) };
        assert_eq!(choose(&filter, &[]), Err(vec![Lead::Tag, Lead::Unsuccessful, Lead::Periods]));
        let sizes = |tag, failed, kind| {
            choose(
                &filter,
                &[(Lead::Tag, tag), (Lead::Unsuccessful, failed), (Lead::Periods, kind), (Lead::All, 900)],
            )
        };
        assert_eq!(sizes(10, 20, 30), Ok(Lead::Tag));
        assert_eq!(sizes(10, 2, 30), Ok(Lead::Unsuccessful));
        assert_eq!(sizes(10, 20, 3), Ok(Lead::Periods));
    }

    #[test]
    fn an_index_in_another_order_leads_only_if_it_is_short() {
        for (state, lead) in
            [(State::Ready, Lead::Ready), (State::Scheduled, Lead::Timers), (State::Waiting, Lead::Parked)]
        {
            let filter = in_state(state);
            assert_eq!(choose(&filter, &[]), Err(vec![lead, Lead::All]));
            assert_eq!(choose(&filter, &[(lead, SORTED), (Lead::All, 5_000_000)]), Ok(lead));
            assert_eq!(choose(&filter, &[(lead, SORTED + 1), (Lead::All, 5_000_000)]), Ok(Lead::All));
        }
        let by_prefix = Filter { key_prefix: text(), ..Filter::default() };
        let sizes = |keys| choose(&by_prefix, &[(Lead::KeyPrefix, keys), (Lead::All, 5_000_000)]);
        assert_eq!((sizes(7), sizes(Sizes::COUNTED)), (Ok(Lead::KeyPrefix), Ok(Lead::All)));
    }

    #[test]
    fn lanes_with_most_of_the_jobs_are_found_among_all() {
        let filter = Filter { kind: text(), ..Filter::default() };
        let sizes = |kind| choose(&filter, &[(Lead::Periods, kind), (Lead::All, 1_000)]);
        assert_eq!((sizes(500), sizes(501)), (Ok(Lead::Periods), Ok(Lead::All)));
    }

    #[test]
    fn keys_with_a_prefix_are_between_two_texts() {
        assert_eq!(key_range("order-"), Some(("order-", "order.".into())));
        assert_eq!(key_range("a\u{d7ff}"), Some(("a\u{d7ff}", "a\u{e000}".into())));
        assert_eq!(key_range("a\u{10ffff}"), Some(("a\u{10ffff}", "b".into())));
        assert_eq!((key_range(""), key_range("\u{10ffff}")), (None, None));
    }
}
