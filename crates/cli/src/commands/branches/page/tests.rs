//! Pages of made-up branches.

use windlass::{
    JobId, State,
    model::{BranchNo, Histogram},
    operate::views::{BranchTimesView, Totals},
};

use super::*;

const NOW: Time = Time(1_800_000_000_000_000);
const PLAIN: Layout = Layout { width: Some(100), colour: false };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn branch(name: &str, spawned: u64, (done, failed, cancelled): (u64, u64, u64)) -> BranchView {
    let pending = spawned - done - failed - cancelled;
    BranchView {
        name: name.into(),
        number: BranchNo(1),
        spawns: vec!["order".into()],
        merge_state: MergeState::Merging,
        sealed: true,
        cancels_children: false,
        spawned,
        done,
        failed,
        cancelled,
        pending,
        never_started: Some(pending.min(400_000)),
        rate: Some(12_340.0),
        eta_seconds: Some(pending as f64 / 12_340.0).filter(|_| pending > 0),
        merge: Some("when all children are done".into()),
        blocked: failed > 0,
        notes: Vec::new(),
        opened_at: NOW - seconds(60),
        merged_at: None,
        last_poll_at: Some(NOW - seconds(3)),
        next_poll_at: Some(NOW + seconds(17)),
        poll_interval_seconds: 20.0,
        polls: 12,
        redelivered: 2,
        redelivered_at: None,
        times: BranchTimesView {
            sealed_at: Some(NOW - seconds(50)),
            spawn_seconds: 10.0,
            spawn_rate: Some(spawned as f64 / 10.0),
            first_start_at: Some(NOW - seconds(58)),
            last_end_at: Some(NOW - seconds(1)),
            end_rate: Some(9_831.0),
            wait: Percentiles::of(&Histogram::default()),
            run: Percentiles::of(&Histogram::default()),
        },
    }
}

fn view(branches: Vec<BranchView>) -> BranchesView {
    let sum = |field: fn(&BranchView) -> u64| branches.iter().map(field).sum();
    let unmerged = Totals {
        branches: branches.len(),
        spawned: sum(|branch| branch.spawned),
        done: sum(|branch| branch.done),
        unsuccessful: sum(BranchView::unsuccessful),
        pending: sum(|branch| branch.pending),
        never_started: Some(sum(|branch| branch.pending)),
        rate: Some(24_680.0),
        eta_seconds: Some(0.12),
    };
    let (job, state) = (JobId::from_parts(1_800_000_000_000, 0, 7), State::Waiting);
    BranchesView {
        job,
        kind: "import".into(),
        key: Some("monday".into()),
        state,
        now: NOW,
        branches,
        unmerged,
    }
}

#[test]
fn the_page_shows_progress_and_what_blocks_a_branch() {
    let id = JobId::from_parts(1_800_000_000_000, 0, 7);
    let note = format!(
        "blocked: the merge waits for 15 unsuccessful children; fix the cause (`windlass branches {id} --children --only \
         failed` lists them), then `windlass redrive {id} --branch orders`"
    );
    let far = BranchView { notes: vec![note], ..branch("orders", 1_000_000, (580_000, 12, 3)) };
    let view = view(vec![far]);
    let expected = format!(
        "job {id}, import, waiting, key monday\n\n\
         orders  sealed, merging\n\
         \u{20} ━━━━━━━━━━━━━━━━━─────────────   58.0 %  580,015 of 1,000,000 ended\n\
         \u{20} 580,000 done · 12 failed · 3 cancelled · 419,985 pending, 400,000 of them never started ·\n\
         \u{20}   12,340/s, about 34s left\n\
         \u{20} opened 60s ago · last poll 3s ago · next poll in 17s · 12 polls · 2 redelivered\n\
         \u{20} spawned in 10s, 100,000/s · first start 58s ago · last end 1s ago, 9,831/s on the whole\n\
         \u{20} merged when all children are done\n\
         \u{20} blocked: the merge waits for 15 unsuccessful children; fix the cause\n\
         \u{20}   (`windlass branches {id} --children --only failed` lists them),\n\
         \u{20}   then `windlass redrive {id} --branch orders`\n"
    );
    assert_eq!(page(&view, PLAIN), expected);
}

#[test]
fn several_branches_have_totals_and_many_are_a_table() {
    let text = page(&view(vec![branch("a", 1_000, (500, 0, 0)), branch("b", 3_000, (500, 0, 0))]), PLAIN);
    let totals =
        "\ntotal  1,000 of 4,000 ended, 3,000 pending, 3,000 of them never started · 24,680/s, about";
    assert!(text.contains(totals), "{text}");
    let many = (0..9).map(|n| branch(&format!("day-{n}"), 10, (10, 0, 0))).collect();
    let text = page(&view(many), PLAIN);
    assert!(text.contains("BRANCH  STATE "), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("day-")).count(), 9, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let unsuccessful = (0..9).map(|n| branch(&format!("day-{n}"), 10, (8, 2, 0))).collect();
    let text = page(&view(unsuccessful), PLAIN);
    assert_eq!(text.matches("blocked: the merge waits for 18 unsuccessful children").count(), 1, "{text}");
}

#[test]
fn rates_are_short_and_shares_are_rounded_down() {
    assert_eq!(
        [12_340.4, 12.0, 3.25, 0.5, 0.01, 0.0].map(format_rate),
        ["12,340/s", "12/s", "3.2/s", "30.0/min", "36.0/h", "0/s"]
    );
    assert_eq!(percent(999_999, 1_000_000), " 99.9 %");
    assert_eq!(percent(5, 5), "100.0 %");
    let coloured = bar(&branch("a", 1_000_000, (0, 1, 0)), 10, Layout { width: None, colour: true });
    assert!(coloured.contains("\u{1b}[31m━"), "{coloured:?}");
}
