//! Tokens: adding, revoking and reading them, and recording their use.

use windlass_model::{Role, Scope, Time, WorkerId};

use super::kit::*;
use crate::{Actor, AuditFilter, ControlOutcome, Error, NewToken, NewWorker, Registrant, Token};

fn new_token(id: &str, name: &str) -> NewToken {
    NewToken {
        id: id.into(),
        name: name.into(),
        role: Role::Operator,
        scope: Scope { kinds: vec!["mail".into(), "sms\"".into()], queues: Vec::new() },
        hash: [7; 32],
        expires_at: Some(t(900)),
    }
}

async fn add(store: &Handle, seconds: u64, token: &NewToken) -> ControlOutcome {
    let actor = Actor::new("ada").note("first day");
    store.add_token(at(seconds), token, &actor).await.expect("add")
}

async fn revoke(store: &Handle, seconds: u64, token: &str) -> ControlOutcome {
    store.revoke_token(at(seconds), token, &Actor::new("bob")).await.expect("revoke")
}

async fn token(store: &Handle, id: &str) -> Token {
    store.token(id).await.expect("read").expect("a token").token
}

async fn audit(store: &Handle) -> Vec<(String, String, String)> {
    let entries = store.inspect().audit(&AuditFilter::default()).await.expect("audit");
    entries.into_iter().map(|entry| (entry.author, entry.action, entry.subject)).collect()
}

fn entry(author: &str, action: &str, subject: &str) -> (String, String, String) {
    (author.into(), action.into(), subject.into())
}

pub async fn a_token_is_kept_with_everything_but_its_secret(store: Handle) {
    assert_eq!(store.token("a1").await.expect("read"), None);
    assert_eq!(add(&store, 5, &new_token("a1", "deploy")).await, ControlOutcome::Done);
    let stored = store.token("a1").await.expect("read").expect("a token");
    let expected = Token {
        id: "a1".into(),
        name: "deploy".into(),
        role: Role::Operator,
        scope: Scope { kinds: vec!["mail".into(), "sms\"".into()], queues: Vec::new() },
        created_at: t(5),
        created_by: "ada".into(),
        expires_at: Some(t(900)),
        revoked_at: None,
        last_used_at: None,
    };
    assert_eq!((stored.token.clone(), stored.hash), (expected, [7; 32]));
    assert_eq!(store.token("deploy").await.expect("read"), None, "requests name the id");
    let plain = NewToken {
        role: Role::Viewer,
        scope: Scope::default(),
        expires_at: None,
        ..new_token("b2", "board")
    };
    assert_eq!(add(&store, 6, &plain).await, ControlOutcome::Done);
    let board = token(&store, "b2").await;
    assert_eq!((board.role, board.expires_at), (Role::Viewer, None));
    assert!(board.scope.is_unlimited());
    assert_eq!(store.tokens().await.expect("list"), [board, stored.token], "by name");
    assert_eq!(
        audit(&store).await,
        [entry("ada", "create token", "board"), entry("ada", "create token", "deploy")]
    );
}

pub async fn the_name_of_a_token_stays_taken(store: Handle) {
    assert_eq!(add(&store, 1, &new_token("a1", "deploy")).await, ControlOutcome::Done);
    for taken in [new_token("a1", "other"), new_token("b2", "deploy")] {
        assert!(matches!(add(&store, 2, &taken).await, ControlOutcome::Refused(_)));
    }
    assert_eq!(revoke(&store, 3, "deploy").await, ControlOutcome::Done);
    assert!(matches!(add(&store, 4, &new_token("c3", "deploy")).await, ControlOutcome::Refused(_)));
    assert_eq!(store.tokens().await.expect("list").len(), 1);
    assert_eq!(audit(&store).await.len(), 2, "what was refused is not in the audit log");
}

pub async fn a_revoked_token_says_so_and_stays_listed(store: Handle) {
    add(&store, 1, &new_token("a1", "deploy")).await.accepted().expect("added");
    add(&store, 1, &new_token("b2", "board")).await.accepted().expect("added");
    assert_eq!(token(&store, "a1").await.why_refused(t(899)), None);
    assert!(token(&store, "a1").await.why_refused(t(900)).is_some(), "it has expired");
    assert_eq!(revoke(&store, 7, "nobody").await, ControlOutcome::Unknown);
    assert_eq!(revoke(&store, 7, "a1").await, ControlOutcome::Done, "by id");
    assert_eq!(revoke(&store, 8, "board").await, ControlOutcome::Done, "by name");
    assert!(matches!(revoke(&store, 9, "deploy").await, ControlOutcome::Already(_)));
    let revoked: Vec<Option<Time>> =
        store.tokens().await.expect("list").iter().map(|token| token.revoked_at).collect();
    assert_eq!(revoked, [Some(t(8)), Some(t(7))]);
    assert!(token(&store, "a1").await.why_refused(t(7)).is_some());
    assert_eq!(
        audit(&store).await[..2],
        [entry("bob", "revoke token", "board"), entry("bob", "revoke token", "deploy")]
    );
}

pub async fn the_use_of_a_token_is_recorded_at_most_once_per_span(store: Handle) {
    add(&store, 1, &new_token("a1", "deploy")).await.accepted().expect("added");
    let touch = async |seconds, since| store.touch_token(at(seconds), "a1", t(since)).await.expect("touch");
    assert!(touch(100, 40).await, "it was not used before");
    assert!(!touch(110, 50).await);
    assert!(!touch(160, 100).await);
    assert!(touch(161, 101).await);
    assert_eq!(token(&store, "a1").await.last_used_at, Some(t(161)));
    assert!(!store.touch_token(at(1), "nobody", t(1)).await.expect("touch"));
}

pub async fn tokens_with_bad_names_are_refused(store: Handle) {
    let bad_scope = Scope { kinds: vec![String::new()], queues: Vec::new() };
    let large_scope = Scope { kinds: Vec::new(), queues: (0..101).map(|n| format!("q{n}")).collect() };
    let bad = [
        new_token("a1", ""),
        new_token("a1", &"x".repeat(5_000)),
        new_token("a1", "nul\0"),
        new_token("", "deploy"),
        NewToken { scope: bad_scope, ..new_token("a1", "deploy") },
        NewToken { scope: large_scope, ..new_token("a1", "deploy") },
    ];
    for token in bad {
        let refused = store.add_token(at(1), &token, &Actor::new("ada")).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{token:?}: {refused:?}");
    }
    assert_eq!(store.tokens().await.expect("list"), []);
}

pub async fn a_worker_belongs_to_the_token_that_registered_it(store: Handle) {
    let remote = NewWorker { token: Some("a1".into()), ..new_worker(1) };
    assert!(store.register_worker(at(0), &remote).await.expect("register"));
    let process = worker(&store, 2).await;
    let registrant = async |worker| store.registrant(worker).await.expect("read");
    assert_eq!(registrant(remote.id).await, Registrant::Token("a1".into()));
    assert_eq!(registrant(process).await, Registrant::Process);
    assert_eq!(registrant(WorkerId(3)).await, Registrant::Unknown);
    let again = NewWorker { token: Some("b2".into()), ..new_worker(1) };
    assert!(!store.register_worker(at(1), &again).await.expect("register"), "the id is taken");
    assert_eq!(registrant(remote.id).await, Registrant::Token("a1".into()), "and stays with its token");
}
