//! Views and rates of made-up branches.

use windlass_model::{BranchCounts, BranchPoll, BranchWatch, Merge};
use windlass_store::{Branch, Summary};

use super::*;

const NOW: Time = Time(1_800_000_000_000_000);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn parent(state: State) -> Summary {
    Summary {
        id: JobId::from_parts(1_800_000_000_000, 0, 7),
        kind: "import".into(),
        version: 1,
        queue: "default".into(),
        key: Some("monday".into()),
        state,
        stage: None,
        reason: None,
        priority: 0,
        attempts: 0,
        submitted_at: NOW,
        due_at: NOW,
        finished_at: None,
    }
}

fn branch(name: &str, spawned: i64, (done, failed, cancelled): (i64, i64, i64)) -> Branch {
    let poll = BranchPoll {
        at: Some(NOW - seconds(3)),
        next_at: Some(NOW + seconds(17)),
        interval: 20.0,
        polls: 12,
        never_started: 400_000,
        rate: 10.0,
        ..BranchPoll::default()
    };
    Branch {
        job: parent(State::Waiting).id,
        number: BranchNo(1),
        name: name.into(),
        spawns: vec!["order".into()],
        cursor: None,
        sealed: true,
        merged: false,
        cancels_children: false,
        spawned,
        counts: BranchCounts { started: done, done, failed, cancelled },
        watch: None,
        merge_record: serde_json::to_string(&Merge::all()).ok(),
        opened_at: NOW - seconds(60),
        sealed_at: None,
        merged_at: None,
        poll,
    }
}

fn view(branch: Branch, state: State) -> BranchView {
    BranchView::new(branch, &BranchTimes::default(), &parent(state), NOW)
}

#[test]
fn orphaned_cancelling_full_and_overdue_branches_have_notes() {
    let notes = |branch: Branch, state| view(branch, state).notes.join("\n");
    let orphaned = notes(branch("a", 10, (4, 1, 0)), State::Failed);
    assert!(
        orphaned.starts_with("orphaned: the job is failed, and 5 children are live that nothing waits for"),
        "{orphaned}"
    );
    let cancelling = notes(Branch { cancels_children: true, ..branch("a", 10, (9, 0, 0)) }, State::Cancelled);
    assert_eq!(cancelling, "cancelling: 1 child is being cancelled");
    let mut late = branch("a", 10, (0, 0, 0));
    late.poll.next_at = Some(NOW - seconds(300));
    assert!(notes(late, State::Waiting).starts_with("overdue: workers should have polled it 5m ago"));
    let watch = BranchWatch { ended: Some(7), ..BranchWatch::default() };
    let full = Branch { watch: Some(watch), sealed: false, merge_record: None, ..branch("a", 10, (4, 0, 0)) };
    assert!(
        notes(full.clone(), State::Waiting)
            .starts_with("full: the limit of children in flight is reached; more are spawned when 7")
    );
    assert_eq!(view(full, State::Waiting).state(), "unsealed, unmerged");
    let merged = Branch { merged: true, ..branch("a", 10, (9, 1, 0)) };
    assert_eq!(
        (notes(merged.clone(), State::Done).as_str(), notes(merged, State::Waiting).as_str()),
        ("", "")
    );
}

#[test]
fn blocked_branches_have_one_note_together_and_one_eta() {
    let views: Vec<BranchView> =
        (0..3).map(|n| view(branch(&format!("day-{n}"), 10, (7, 2, 0)), State::Waiting)).collect();
    assert!(views.iter().all(|view| view.blocked && view.eta_seconds == Some(0.1)));
    let notes = joint_notes(&views, parent(State::Waiting).id);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with("blocked: the merge waits for 6 unsuccessful children"), "{notes:?}");
    let totals = Totals::of(&views);
    assert_eq!((totals.pending, totals.rate, totals.eta_seconds), (3, Some(30.0), Some(0.1)));
}

#[test]
fn the_times_of_a_branch_are_rates_and_percentiles() {
    let mut times = BranchTimes { last_end_at: Some(NOW - seconds(10)), ..BranchTimes::default() };
    times.run_times.add(windlass_model::Histogram::bucket(2_000_000), 8);
    let sealed = Branch { sealed_at: Some(NOW - seconds(58)), ..branch("a", 10, (7, 1, 0)) };
    let seen = BranchView::new(sealed, &times, &parent(State::Waiting), NOW).times;
    assert_eq!((seen.spawn_seconds, seen.spawn_rate, seen.end_rate), (2.0, Some(5.0), Some(0.16)));
    let (p50, p95) = (seen.run.p50_seconds.expect("known"), seen.run.p95_seconds.expect("known"));
    assert!((1.8..2.2).contains(&p50) && p50 == p95 && seen.wait.p50_seconds.is_none(), "{seen:?}");
    // It is still being filled, and nothing has ended.
    let open = view(Branch { sealed: false, ..branch("a", 30, (0, 0, 0)) }, State::Running).times;
    assert_eq!((open.spawn_rate, open.end_rate, open.last_end_at), (Some(0.5), None, None));
}

#[test]
fn rates_are_measured_over_the_last_samples() {
    let (mut meter, began) = (RateMeter::default(), Instant::now());
    let at = |seconds: u64| began + Duration::from_secs(seconds);
    let branch = |number: i64, done: i64| {
        let branch = Branch { number: BranchNo(number), ..branch("a", 1_000, (done, 0, 0)) };
        view(branch, State::Waiting)
    };
    meter.add(at(0), &[branch(1, 0)]);
    assert_eq!(meter.rate(BranchNo(1)), None, "one sample is not enough");
    meter.add(at(2), &[branch(1, 100), branch(2, 7)]);
    assert_eq!((meter.rate(BranchNo(1)), meter.rate(BranchNo(2))), (Some(50.0), None));
    for second in 3..20 {
        meter.add(at(second), &[branch(1, 100), branch(2, 7 + second as i64)]);
    }
    assert_eq!((meter.rate(BranchNo(1)), meter.rate(BranchNo(2))), (Some(0.0), Some(1.0)));
    meter.add(at(20), &[branch(1, 40), branch(2, 27)]);
    assert_eq!(meter.rate(BranchNo(1)), Some(0.0), "a retried child does not make the rate negative");
}
