//! Why a change is refused for what it does to branches.

use super::BranchNo;
use crate::StepWrites;

impl StepWrites {
    /// Returns the branches that it updates or spawns children in, each once, by number.
    pub fn named_branches(&self) -> Vec<BranchNo> {
        let mut numbers: Vec<BranchNo> = Vec::new();
        let updated = self.branches.iter().map(|update| update.number);
        for number in updated.chain(self.spawned_in()) {
            // Children of one branch come together, and may be many.
            if numbers.last() != Some(&number) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Returns why the branches of the job do not allow this step; `None` if they do. `is_sealed` returns `None` for a branch that
    /// does not exist.
    ///
    /// A step may open a branch that does not exist, and update one that does. It may spawn children in a branch that it opens, or
    /// that exists and is not sealed.
    pub fn branch_refusal(&self, is_sealed: impl Fn(BranchNo) -> Option<bool>) -> Option<String> {
        for update in &self.branches {
            match (is_sealed(update.number), &update.opened_as) {
                (Some(_), Some(_)) => return Some(format!("there is a branch {} already", update.number)),
                (None, None) => return Some(format!("there is no branch {}", update.number)),
                _ => {}
            }
        }
        let opens =
            |number| self.branches.iter().any(|update| update.number == number && update.opened_as.is_some());
        let mut last_open = None;
        for number in self.spawned_in() {
            if last_open != Some(number) && is_sealed(number) != Some(false) && !opens(number) {
                return Some(format!("there is no open branch {number}"));
            }
            last_open = Some(number);
        }
        None
    }

    /// The branches of its children.
    fn spawned_in(&self) -> impl Iterator<Item = BranchNo> {
        self.children.iter().filter_map(|child| Some(child.branch_position.as_ref()?.branch))
    }
}

/// Returns why a change is refused that accounts for this many items of a block which has `left` items that are not counted; `None`
/// if it is not.
pub fn items_refusal(accounted: u32, left: u32) -> Option<String> {
    (accounted > left).then(|| format!("{accounted} items are accounted for, and {left} are left"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BranchPosition, BranchUpdate, JobId, NewJob, Payload};

    /// A step that opens some branches, updates others, and spawns one child in each of the last.
    fn step(opened: &[i64], updated: &[i64], spawned: &[i64]) -> StepWrites {
        let open = |number: &i64| BranchUpdate {
            opened_as: Some("b".into()),
            ..BranchUpdate::new(BranchNo(*number))
        };
        let update = |number: &i64| BranchUpdate::new(BranchNo(*number));
        let child = |number: &i64| NewJob {
            branch_position: Some(Box::new(BranchPosition {
                branch: BranchNo(*number),
                spawn: 0,
                item: String::new(),
                items: 1,
            })),
            ..NewJob::new(JobId::from_parts(1, 1, 1), "k", "q", Payload::default())
        };
        StepWrites {
            branches: opened.iter().map(open).chain(updated.iter().map(update)).collect(),
            children: spawned.iter().map(child).collect(),
            ..StepWrites::default()
        }
    }

    /// Branch 1 is open, branch 2 is sealed, and there are no others.
    fn refusal(step: &StepWrites) -> Option<String> {
        step.branch_refusal(|number| match number.0 {
            1 => Some(false),
            2 => Some(true),
            _ => None,
        })
    }

    #[test]
    fn a_step_opens_new_branches_and_updates_existing_ones() {
        assert_eq!(refusal(&step(&[3], &[1, 2], &[])), None);
        assert_eq!(refusal(&step(&[1], &[], &[])).as_deref(), Some("there is a branch 1 already"));
        assert_eq!(refusal(&step(&[2], &[], &[])).as_deref(), Some("there is a branch 2 already"));
        assert_eq!(refusal(&step(&[], &[3], &[])).as_deref(), Some("there is no branch 3"));
    }

    #[test]
    fn a_step_spawns_children_only_in_open_branches() {
        assert_eq!(refusal(&step(&[], &[], &[1, 1])), None);
        assert_eq!(refusal(&step(&[3], &[], &[1, 3, 1])), None, "one is opened by the same step");
        assert_eq!(refusal(&step(&[], &[], &[1, 2])).as_deref(), Some("there is no open branch 2"));
        assert_eq!(refusal(&step(&[], &[2], &[2])).as_deref(), Some("there is no open branch 2"));
        assert_eq!(refusal(&step(&[3], &[], &[3, 4])).as_deref(), Some("there is no open branch 4"));
    }

    #[test]
    fn each_named_branch_is_listed_once() {
        let numbers = |step: StepWrites| -> Vec<i64> {
            step.named_branches().into_iter().map(|number| number.0).collect()
        };
        assert_eq!(numbers(step(&[5], &[3, 3], &[4, 4, 5, 4])), [3, 4, 5]);
        assert!(numbers(step(&[], &[], &[])).is_empty());
    }

    #[test]
    fn a_block_accounts_for_no_more_items_than_it_has_left() {
        assert_eq!(items_refusal(0, 0), None);
        assert_eq!(items_refusal(3, 3), None);
        assert_eq!(items_refusal(4, 3).as_deref(), Some("4 items are accounted for, and 3 are left"));
    }
}
