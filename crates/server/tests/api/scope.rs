//! A token with a scope learns nothing of jobs outside of it, also not from what is said of its own jobs.

use serde_json::json;
use windlass::model::{NewJob, Outcome, Payload, Rev, Role, StepWrites, Wait, WaitCondition};

use crate::{
    client::Request,
    events::Stream,
    kit::{Database, Running},
    on_both,
    written::{Claimed, children, echo},
};

on_both! {
    neither_parents_nor_holders_nor_children_are_named
    a_token_of_some_kinds_does_not_learn_the_names_of_queues
}

async fn neither_parents_nor_holders_nor_children_are_named(database: Database) {
    let server = Running::new(database).await;
    let engine = &server.engine;
    let token = server.token("scoped", Role::Viewer, &["echo"], &[]).await;
    let other = || NewJob::new(engine.new_id(), "other", "default", Payload::json(b"1".to_vec()));
    let both = async |path: String| {
        let all = server.get(&path).await.expect(200);
        let scoped = server.send(Request::get(&path).token(&token)).await.expect(200);
        (all, scoped)
    };

    // A child in a branch of a parent that it may not see.
    let mut parent = Claimed::submit(engine, NewJob { key: Some("acme-77".into()), ..other() }).await;
    let child = children(engine, [5]);
    let id = child[0].id;
    parent.open_branch(engine, "all", child).await;
    let (all, scoped) = both(format!("/v1/jobs/{id}")).await;
    assert_eq!(all["child_name"], "acme-77$all$each_5");
    assert_eq!(scoped["child_name"], format!("{}$all$each_5", parent.id()));
    assert!(!scoped.to_string().contains("acme-77"), "{scoped}");

    // A job in line behind one that it may not see.
    let mut holder = other();
    holder.settings.serial = Some(Box::new(windlass::Serial::new("door")));
    let (holder, holder_id) = ([holder.clone()], holder.id.to_string());
    engine.store().submit(None, &holder, None).await.expect("submitted");
    let waits = server.submit(json!({ "kind": "echo", "serial": { "key": "door" } })).await;
    let (all, scoped) = both(format!("/v1/jobs/{waits}")).await;
    assert_eq!(all["holds"]["serial"]["holders"], json!([holder_id]));
    assert_eq!(scoped["holds"]["serial"]["holders"], json!([]));
    assert_eq!(scoped["holds"]["serial"]["hidden_holders"], 1);
    let (all, scoped) = both(format!("/v1/jobs/{waits}/why")).await;
    assert!(all.to_string().contains(&holder_id), "{all}");
    assert!(!scoped.to_string().contains(&holder_id), "{scoped}");

    // A parent that waits for a child that it may not see, and for one that it may.
    for (child, is_visible) in [(other(), false), (echo(engine), true)] {
        let id = child.id.to_string();
        let mut parent = Claimed::submit(engine, echo(engine)).await;
        let rev = Rev(parent.job.rev.0 + 1);
        let wait = Outcome::Wait(Wait { condition: WaitCondition::Children { rev }, timeout: None });
        let stage = Some(("Joining".to_owned(), Payload::json(b"1".to_vec())));
        let writes = StepWrites { stage, children: vec![child], ..StepWrites::default() };
        parent.commit(engine, writes, wait).await;
        let (all, scoped) = both(format!("/v1/jobs/{}/why", parent.id())).await;
        assert!(all["hint"].as_str().expect("a hint").contains(&id), "{all}");
        assert_eq!(all["child"]["job"], id);
        assert_eq!(scoped.to_string().contains(&id), is_visible, "{scoped}");
    }
}

async fn a_token_of_some_kinds_does_not_learn_the_names_of_queues(database: Database) {
    let server = Running::new(database).await;
    let own = server.echo("x").await;
    server.submit(json!({ "kind": "approval", "input": {}, "queue": "secret" })).await;
    let token = server.token("kinds", Role::Viewer, &["echo"], &[]).await;
    let open = async |query: &str| {
        let request = Request::get(&format!("/v1/events?{query}")).token(&token);
        Stream::open(&server, request).await
    };
    let mut all = Stream::open(&server, Request::get("/v1/events")).await;
    let mut own_end = open(&format!("job={own}")).await;
    let mut named = open("queue=default").await;
    assert_eq!(named.next().await.expect("an event").data["queue"], "default", "it may name a queue");
    let mut queues = Vec::new();
    while !queues.contains(&"secret".to_owned()) {
        let gate = all.next_named("gate").await;
        queues.push(gate.data["queue"].as_str().expect("a queue").to_owned());
    }
    server.post(&format!("/v1/jobs/{own}/cancel"), json!({})).await.expect(200);
    let first = own_end.next().await.expect("an event");
    assert_eq!((first.name.as_str(), &first.data["job"]), ("job", &json!(own)), "and no gate before it");
}
