//! Pages of made-up branches.

use windlass::{
    JobId, Merge, State,
    model::{BranchCounts, BranchNo, BranchPoll},
    store::Branch,
};

use super::*;

const NOW: Time = Time(1_800_000_000_000_000);
const PLAIN: Layout = Layout { width: Some(100), colour: false };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn parent(state: State) -> Parent {
    let id = JobId::from_parts(1_800_000_000_000, 0, 7);
    Parent { id, kind: "import".into(), key: Some("monday".into()), state }
}

fn branch(name: &str, spawned: i64, (done, failed, cancelled): (i64, i64, i64)) -> Branch {
    let poll = BranchPoll {
        at: Some(NOW.minus(seconds(3))),
        next_at: Some(NOW.plus(seconds(17))),
        interval: 20.0,
        polls: 12,
        ended: done + failed + cancelled,
        pending: 0,
        never_started: 400_000,
        rate: 12_340.0,
        eta: None,
        redelivered: 2,
        redelivered_at: None,
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
        goal: Some(serde_json::to_string(&Merge::all()).expect("JSON")),
        opened_at: NOW.minus(seconds(60)),
        merged_at: None,
        poll,
    }
}

fn view(branch: Branch, state: State) -> BranchView {
    BranchView::new(branch, &parent(state), None, NOW, "windlass")
}

#[test]
fn the_page_shows_progress_and_what_blocks_a_branch() {
    let far = branch("orders", 1_000_000, (580_000, 12, 3));
    let id = parent(State::Waiting).id;
    let page = page(&parent(State::Waiting), &[view(far, State::Waiting)], NOW, PLAIN, "windlass");
    let expected = format!(
        "job {id}, import, waiting, key monday\n\n\
         orders  sealed, merging\n\
         \u{20} ━━━━━━━━━━━━━━━━━─────────────   58.0 %  580,015 of 1,000,000 ended\n\
         \u{20} 580,000 done · 12 failed · 3 cancelled · 419,985 pending, 400,000 of them never started ·\n\
         \u{20}   12,340/s, about 34s left\n\
         \u{20} opened 60s ago · last poll 3s ago · next poll in 17s · 12 polls · 2 redelivered\n\
         \u{20} merged when all children are done; a failed or cancelled one is waited for\n\
         \u{20} blocked: the merge waits for 15 unsuccessful children; fix the cause\n\
         \u{20}   (`windlass branches {id} --children --only failed` lists them),\n\
         \u{20}   then `windlass redrive {id} --branch orders`\n"
    );
    assert_eq!(page, expected);
}

#[test]
fn several_branches_have_totals_and_many_are_a_table() {
    let two = [branch("a", 1_000, (500, 0, 0)), branch("b", 3_000, (500, 0, 0))];
    let views: Vec<BranchView> = two.into_iter().map(|branch| view(branch, State::Waiting)).collect();
    let text = page(&parent(State::Waiting), &views, NOW, PLAIN, "windlass");
    let totals =
        "\ntotal  1,000 of 4,000 ended, 3,000 pending, 3,000 of them never started · 24,680/s, about";
    assert!(text.contains(totals), "{text}");
    let many: Vec<BranchView> =
        (0..9).map(|n| view(branch(&format!("day-{n}"), 10, (10, 0, 0)), State::Waiting)).collect();
    let text = page(&parent(State::Waiting), &many, NOW, PLAIN, "windlass");
    assert!(text.contains("BRANCH  STATE "), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("day-")).count(), 9, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let unsuccessful: Vec<BranchView> =
        (0..9).map(|n| view(branch(&format!("day-{n}"), 10, (8, 2, 0)), State::Waiting)).collect();
    let text = page(&parent(State::Waiting), &unsuccessful, NOW, PLAIN, "windlass");
    assert_eq!(text.matches("blocked: the merge waits for 18 unsuccessful children").count(), 1, "{text}");
    assert!(text.contains(&format!("`windlass redrive {}`", parent(State::Waiting).id)), "{text}");
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
    late.poll.next_at = Some(NOW.minus(seconds(300)));
    assert!(notes(late, State::Waiting).starts_with("overdue: workers should have polled it 5m ago"));
    let watch = windlass::model::BranchWatch { ended: Some(7), ..Default::default() };
    let full = Branch { watch: Some(watch), sealed: false, goal: None, ..branch("a", 10, (4, 0, 0)) };
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
fn rates_are_short_and_shares_are_rounded_down() {
    assert_eq!(
        [12_340.4, 12.0, 3.25, 0.5, 0.01, 0.0].map(format_rate),
        ["12,340/s", "12/s", "3.2/s", "30.0/min", "36.0/h", "0/s"]
    );
    assert_eq!(percent(999_999, 1_000_000), " 99.9 %");
    assert_eq!(percent(5, 5), "100.0 %");
    let one_failed = view(branch("a", 1_000_000, (0, 1, 0)), State::Waiting);
    let coloured = bar(&one_failed, 10, Layout { width: None, colour: true });
    assert!(coloured.contains("\u{1b}[31m━"), "{coloured:?}");
}
