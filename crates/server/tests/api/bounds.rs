//! What a page reads and has: a bounded number of rows and of bytes, however much there is.

use serde_json::{Value, json};
use windlass::model::{Outcome, StepWrites};

use crate::{
    kit::{Database, Running},
    on_both,
    written::{Claimed, bytes, children, echo},
};

on_both! {
    a_page_of_children_examines_a_bounded_number_and_says_where_to_go_on
    a_child_is_found_by_its_name_without_reading_its_branch
    pages_of_a_journal_are_cut_at_their_bytes
    a_journal_that_is_too_long_is_not_read_to_explain_its_job
}

/// Statements that a request may cost besides those of its answer.
const SOME: u64 = 25;

async fn a_page_of_children_examines_a_bounded_number_and_says_where_to_go_on(database: Database) {
    let server = Running::new(database).await;
    let mut parent = Claimed::submit(&server.engine, echo(&server.engine)).await;
    let many = children(&server.engine, 0..11_000);
    let last = many[10_999].id;
    let mut parts = many.chunks(5_500);
    let mut part = || parts.next().expect("two parts").to_vec();
    parent.open_branch(&server.engine, "all", part()).await;
    parent.spawn(&server.engine, part()).await;
    server.post(&format!("/v1/jobs/{last}/cancel"), json!({})).await.expect(200);

    let lists = [
        ("children?state=cancelled", "jobs"),
        ("children?state=done", "jobs"),
        ("children?branch=all&state=done", "jobs"),
        ("items?only=done", "children"),
        ("items?only=live", "children"),
    ];
    for (list, field) in lists {
        let (mut found, mut pages, mut after) = (0, 0, String::new());
        loop {
            let before = server.engine.store().statements();
            let page = server.get(&format!("/v1/jobs/{}/{list}&limit=1000{after}", parent.id())).await;
            let page = page.expect(200);
            let statements = server.engine.store().statements() - before;
            assert!(statements <= 22 * 4 + SOME, "{list}: {statements} statements");
            found += page[field].as_array().expect("a list").len();
            pages += 1;
            match page["next_after"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
            assert!(pages < 20, "{list} has an end");
        }
        let expected = match list {
            "children?state=cancelled" => 1,
            "items?only=live" => 10_999,
            _ => 0,
        };
        assert_eq!(found, expected, "{list}");
        assert!(pages >= 2, "{list}: no page examines all of them");
    }
    // Of those that failed or were cancelled there is an index: no other is examined.
    let failed = server.get(&format!("/v1/jobs/{}/items?only=failed", parent.id())).await.expect(200);
    assert_eq!((failed["children"][0]["id"].clone(), &failed["next_after"]), (json!(last), &Value::Null));
}

async fn a_child_is_found_by_its_name_without_reading_its_branch(database: Database) {
    let server = Running::new(database).await;
    let mut parent = Claimed::submit(&server.engine, echo(&server.engine)).await;
    let many = children(&server.engine, 0..3_000);
    let (wanted, id) = (many[2_987].id, parent.id());
    parent.open_branch(&server.engine, "all", many).await;
    let find = async |name: &str| {
        let before = server.engine.store().statements();
        let found = server.get(&format!("/v1/find?name={id}%24all%24{name}")).await;
        (found, server.engine.store().statements() - before)
    };
    let (found, statements) = find("each_2987").await;
    assert_eq!(found.expect(200), json!({ "job": wanted }));
    assert!(statements <= SOME, "{statements} statements");
    let (missing, statements) = find("each_3000").await;
    let error = missing.refused(404, "not_found");
    assert!(error["message"].as_str().expect("a text").contains("no child for the item"), "{error}");
    assert!(statements <= SOME, "{statements} statements");
}

async fn pages_of_a_journal_are_cut_at_their_bytes(database: Database) {
    let server = Running::new(database).await;
    let mut job = Claimed::submit(&server.engine, echo(&server.engine)).await;
    // Sixteen of these fit into 16 MiB, and seventeen do not.
    let size = 1_000_000;
    for from in [0, 3, 6, 9, 12, 15] {
        job.add_entries(&server.engine, from, 3, size).await;
    }
    let id = job.id();
    let seqs = |page: &Value, field: &str| -> Vec<i64> {
        let entries = page[field].as_array().expect("entries");
        entries.iter().map(|entry| entry["seq"].as_i64().expect("a number")).collect()
    };
    let first = server.get(&format!("/v1/jobs/{id}/journal?limit=1000")).await.expect(200);
    assert_eq!((seqs(&first, "journal"), first["next_after"].as_i64()), ((0..16).collect(), Some(15)));
    let second = server.get(&format!("/v1/jobs/{id}/journal?limit=1000&after=15")).await.expect(200);
    assert_eq!((seqs(&second, "journal"), &second["next_after"]), (vec![16, 17], &Value::Null));
    let three = server.get(&format!("/v1/jobs/{id}/journal?limit=3&after=15")).await.expect(200);
    assert_eq!((seqs(&three, "journal").len(), &three["next_after"]), (2, &Value::Null));
    let shown = server.get(&format!("/v1/jobs/{id}?entries=1000")).await.expect(200);
    assert_eq!(seqs(&shown, "journal"), (2..18).collect::<Vec<i64>>(), "the last ones");
    assert_eq!(shown["omitted"], 2);
    let shown = server.get(&format!("/v1/jobs/{id}?entries=2")).await.expect(200);
    assert_eq!((seqs(&shown, "journal"), &shown["omitted"]), (vec![16, 17], &json!(16)));

    let worker =
        async |call: &str, body: Value| server.post(&format!("/worker/v1/{call}"), body).await.expect(200);
    let page = worker("journal", json!({ "job": id })).await;
    assert_eq!((seqs(&page, "entries"), &page["more"]), ((0..16).collect(), &json!(true)));
    let page = worker("journal", json!({ "job": id, "after": 15 })).await;
    assert_eq!((seqs(&page, "entries"), &page["more"]), (vec![16, 17], &json!(false)));
    let all = worker("journals", json!({ "jobs": [id, id, id] })).await;
    let lengths: Vec<(usize, bool)> = (0..3)
        .map(|at| &all["journals"][at])
        .map(|page| (seqs(page, "entries").len(), page["more"] == true))
        .collect();
    assert_eq!(lengths, [(16, true), (16, true), (0, true)], "an answer has two pages at most");

    // Ends, and children with large outputs.
    let mut ended = Vec::new();
    for _ in 0..18 {
        let mut one = Claimed::submit(&server.engine, echo(&server.engine)).await;
        one.commit(&server.engine, StepWrites::default(), Outcome::Done(bytes(size))).await;
        ended.push(one.id());
    }
    let ends = worker("ends", json!({ "jobs": ended })).await;
    assert_eq!(ends["ends"].as_array().expect("ends").len(), 16);
    let ends = worker("ends", json!({ "jobs": ended[16..] })).await;
    assert_eq!(ends["ends"].as_array().expect("ends").len(), 2);
}

async fn a_journal_that_is_too_long_is_not_read_to_explain_its_job(database: Database) {
    let server = Running::new(database).await;
    let mut job = Claimed::submit(&server.engine, echo(&server.engine)).await;
    for from in [0, 4_000, 8_000] {
        job.add_entries(&server.engine, from, 4_000, 20).await;
    }
    let failed = Outcome::Failed {
        reason: windlass::model::Reason::Stopped,
        failure: windlass::Failure::stop("it was asked to"),
    };
    job.commit(&server.engine, StepWrites::default(), failed).await;
    let why = server.get(&format!("/v1/jobs/{}/why", job.id())).await.expect(200);
    let hint = why["hint"].as_str().expect("a hint");
    assert!(hint.contains("more than the 10000 entries") && !hint.contains("fork"), "{hint}");
}
