//! Graphs of journals that are made up.

use windlass_model::{
    JournalEntry, Payload, State, Time, WaitCondition,
    journal::{CallEvent, CallKind},
    wait::SignalName,
};

use super::{CallState, Graph, Point, Run};

/// A journal, from what each entry says: call_kind, event, name, key and payload.
fn journal(entries: &[(CallKind, CallEvent, &str, Option<&str>, &str)]) -> Vec<JournalEntry> {
    let entry = |(seq, (call_kind, event, name, key, payload)): (
        usize,
        &(CallKind, CallEvent, &str, Option<&str>, &str),
    )| {
        JournalEntry {
            seq: i32::try_from(seq).expect("short"),
            call_kind: *call_kind,
            event: *event,
            name: (*name).to_owned(),
            key: key.map(String::from),
            line: None,
            at: Time(seq as i64),
            payload: Payload::json(payload.as_bytes().to_vec()),
        }
    };
    entries.iter().enumerate().map(entry).collect()
}

fn of(entries: &[JournalEntry], state: State) -> Graph {
    Graph::of_job(Run { entries, state, wait: None, branches: &[] })
}

/// Edges as `a>b`, with `^` for the start and the state for the end.
fn edges(graph: &Graph) -> Vec<String> {
    let name = |point: Point| match point {
        Point::Start => "^".to_owned(),
        Point::Node(node) => graph.nodes[node].name.clone(),
        Point::End(state) => state.to_string(),
    };
    graph.edges.iter().map(|edge| format!("{}>{}", name(edge.from), name(edge.to))).collect()
}

fn notes<'a>(graph: &'a Graph, name: &str) -> &'a [String] {
    &graph.nodes.iter().find(|node| node.name == name).expect(name).notes
}

#[test]
fn calls_follow_each_other_and_loops_are_one_node() {
    use CallEvent::{Done, Failed, Tried};
    let entries = journal(&[
        (CallKind::Step, Tried, "reserve", None, "{}"),
        (CallKind::Step, Done, "reserve", None, "1"),
        (CallKind::Now, Done, "windlass.now", Some("1"), "5"),
        (CallKind::Step, Done, "add", Some("1"), "1"),
        (CallKind::Step, Done, "pack", Some("1"), "1"),
        (CallKind::Step, Done, "add", Some("2"), "1"),
        (CallKind::Context, Done, "progress", None, "1"),
        (CallKind::Step, Failed, "pack", Some("2"), "{}"),
        (CallKind::Lifecycle, Failed, "windlass.ended", None, "{\"voids\":[7]}"),
    ]);
    let graph = of(&entries, State::Failed);
    assert_eq!(edges(&graph), ["^>reserve", "reserve>add", "add>pack", "pack>add", "pack>failed"]);
    assert_eq!(graph.nodes.iter().map(|node| node.level).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(notes(&graph, "reserve"), ["1 failed attempt"]);
    let pack = &graph.nodes[2];
    assert_eq!((pack.calls(), pack.fates[&CallState::Done], pack.fates[&CallState::Failed]), (2, 1, 1));
}

#[test]
fn calls_in_progress_together_are_side_by_side() {
    use CallEvent::{Begun, Done};
    let id = "\"0199f0c2-6f7a-7000-8000-3d2a2d6b8c91\"";
    let entries = journal(&[
        (CallKind::Step, Done, "plan", None, "1"),
        (CallKind::Child, Begun, "long", None, id),
        (CallKind::Step, Done, "one", None, "1"),
        (CallKind::Step, Done, "two", None, "1"),
        (CallKind::Child, Done, "long", None, "1"),
        (CallKind::Step, Done, "join", None, "1"),
    ]);
    let graph = of(&entries, State::Done);
    assert_eq!(
        edges(&graph),
        ["^>plan", "plan>long", "plan>one", "long>join", "one>two", "two>join", "join>done"]
    );
    let level = |name: &str| graph.nodes.iter().find(|node| node.name == name).expect(name).level;
    assert_eq!(["plan", "long", "one", "two", "join"].map(level), [0, 1, 1, 2, 3]);
    assert_eq!(notes(&graph, "long"), ["job 0199f0c2-6f7a-7000-8000-3d2a2d6b8c91"]);
}

#[test]
fn a_select_shows_which_call_was_first_and_which_were_left() {
    use CallEvent::{Begun, Done};
    let entries = journal(&[
        (CallKind::Sleep, Begun, "late", None, "9"),
        (CallKind::Signal, Done, "decision", None, "true"),
        (CallKind::Select, Done, "who", None, "0"),
        (CallKind::Version, Done, "pay", None, "2"),
        (CallKind::Signal, Begun, "paid", None, "99"),
    ]);
    let names = vec![
        SignalName { name: "paid".into(), every: false },
        SignalName { name: "called_off".into(), every: false },
        SignalName { name: "windlass.child".into(), every: true },
    ];
    let wait = WaitCondition::Signals { names, needs: 1 };
    let graph =
        Graph::of_job(Run { entries: &entries, state: State::Waiting, wait: Some(&wait), branches: &[] });
    assert_eq!(
        edges(&graph),
        ["^>late", "^>decision", "late>who", "decision>who", "who>pay", "pay>paid", "pay>called_off"]
    );
    let colour = |name: &str| graph.nodes.iter().find(|node| node.name == name).expect(name).colour();
    assert_eq!(
        ["late", "decision", "paid", "called_off"].map(colour),
        [CallState::Left, CallState::Done, CallState::Waiting, CallState::Waiting]
    );
    assert_eq!(
        (notes(&graph, "who"), notes(&graph, "pay")),
        (&["first was A".into()][..], &["version 2".into()][..])
    );
}

#[test]
fn a_repeat_has_its_ticks_and_an_undo_its_result() {
    use CallEvent::{Begun, Done, Failed, NotUndone, Tried, Undone};
    let missed =
        serde_json::json!({ "from": Time(1), "to": Time(2), "count": 3, "at_least": false }).to_string();
    let entries = journal(&[
        (CallKind::Step, Done, "pay", None, "1"),
        (CallKind::Step, Done, "book", None, "1"),
        (CallKind::Repeat, Failed, "beat", Some("missed 1"), &missed),
        (CallKind::Repeat, Done, "beat", Some("t1"), "null"),
        (CallKind::Repeat, Begun, "beat", None, r#"{"from": 1, "last": 2, "ticks": 12}"#),
        (CallKind::Repeat, Done, "beat", None, "[null]"),
        (CallKind::Step, Failed, "ship", None, "{}"),
        (CallKind::Step, Tried, "undo book", None, "{}"),
        (CallKind::Step, NotUndone, "book", None, "{}"),
        (CallKind::Step, Undone, "pay", None, "null"),
    ]);
    let graph = of(&entries, State::Failed);
    assert_eq!(edges(&graph), ["^>pay", "pay>book", "book>beat", "beat>ship", "ship>failed"]);
    assert_eq!(notes(&graph, "beat"), ["12 ticks, 3 missed"]);
    assert_eq!((graph.nodes[0].colour(), graph.nodes[1].colour()), (CallState::Undone, CallState::NotUndone));
}

#[test]
fn jobs_of_a_kind_are_overlaid() {
    use CallEvent::{Done, Failed};
    let good = journal(&[(CallKind::Step, Done, "a", None, "1"), (CallKind::Step, Done, "b", None, "1")]);
    let bad =
        journal(&[(CallKind::Step, Failed, "a", None, "{}"), (CallKind::Step, Done, "amends", None, "1")]);
    let run = |entries| Run { entries, state: State::Done, wait: None, branches: &[] };
    let graph = Graph::of_kind([run(&good), run(&good), run(&bad)]);
    let counted: Vec<(String, u64)> =
        edges(&graph).into_iter().zip(graph.edges.iter().map(|edge| edge.jobs)).collect();
    let counted: Vec<(&str, u64)> = counted.iter().map(|(edge, jobs)| (edge.as_str(), *jobs)).collect();
    assert_eq!(counted, [("^>a", 3), ("a>b", 2), ("a>amends", 1), ("b>done", 2), ("amends>done", 1)]);
    assert!(graph.to_mermaid("k").contains("n0 -->|2| n1"), "{}", graph.to_mermaid("k"));
}

#[test]
fn names_are_escaped_in_both_formats() {
    let evil = "</text><script>alert(\"1\")</script>]; & ";
    let entries = journal(&[(CallKind::Step, CallEvent::Done, evil, Some(evil), "1")]);
    let graph = of(&entries, State::Done);
    let svg = graph.to_svg(evil);
    assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;"), "{svg}");
    assert!(!svg.contains("http") || svg.matches("http").count() == 1, "only the namespace is an address");
    assert!(!graph.to_mermaid("t").contains("<script"));
    // An empty journal is a picture too.
    assert!(of(&[], State::Ready).to_svg("empty").ends_with("</svg>\n"));
}

#[test]
fn a_branch_is_one_node_with_its_count() {
    use CallEvent::{Begun, Done};
    let entries = journal(&[
        (CallKind::Branch, Begun, "items", None, "4294967296"),
        (CallKind::Branch, Done, "items", None, "4294967296"),
        (CallKind::Merge, Done, "merge", Some("items"), "{}"),
        (CallKind::Reduce, Done, "reduce", Some("items"), "7"),
    ]);
    let branch = windlass_store::Branch {
        job: windlass_model::JobId::from_parts(1, 0, 0),
        number: windlass_model::BranchNo(4_294_967_296),
        name: "items".into(),
        spawns: vec!["item".into()],
        cursor: None,
        sealed: true,
        merged: false,
        cancels_children: false,
        spawned: 1_000,
        counts: windlass_model::BranchCounts { started: 0, done: 900, failed: 2, cancelled: 0 },
        watch: None,
        merge_record: None,
        opened_at: Time(1),
        sealed_at: None,
        merged_at: None,
        poll: windlass_model::BranchPoll::default(),
    };
    let branches = [branch];
    let run = Run { entries: &entries, state: State::Done, wait: None, branches: &branches };
    let graph = Graph::of_job(run);
    assert_eq!(edges(&graph), ["^>items", "items>merge", "merge>reduce", "reduce>done"]);
    assert_eq!(notes(&graph, "items"), ["1000 children, 2 failed, 98 pending"]);
    assert_eq!(
        (notes(&graph, "merge"), notes(&graph, "reduce")),
        (&["of items".into()][..], &["of items".into()][..])
    );
    let merge = windlass_model::Merge::all();
    let waits =
        [windlass_store::Branch { merge_record: serde_json::to_string(&merge).ok(), ..branches[0].clone() }];
    let run_on = Run { entries: &entries[..2], state: State::Waiting, wait: None, branches: &waits };
    let waiting = Graph::of_job(run_on);
    assert_eq!(edges(&waiting), ["^>items", "items>merge"], "a merge has no entry before it ends");
    assert_eq!(
        (waiting.nodes[1].colour(), notes(&waiting, "merge")),
        (CallState::Waiting, &["of items".into()][..])
    );
    let both = Graph::of_kind([run, run]);
    assert_eq!(notes(&both, "items"), ["2000 children, 4 failed, 196 pending"]);
    assert!(both.to_mermaid("k").contains("branch: 2 done<br/>2000 children"), "{}", both.to_mermaid("k"));
}
