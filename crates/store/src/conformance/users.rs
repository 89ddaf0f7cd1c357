//! Users and their sessions: adding and changing users; sessions that are used, ended, expired and pruned.

use windlass_model::{Role, Scope};

use super::{
    kit::*,
    races::{ROUNDS, race, run_concurrently},
};
use crate::{
    Actor, AuditFilter, ControlOutcome, Error, NewSession, NewToken, NewUser, PasswordHash, Session,
    SessionUse, User, UserChange,
};

fn hash(text: &str) -> PasswordHash {
    PasswordHash(format!("$argon2id${text}"))
}

fn new_user(name: &str) -> NewUser {
    NewUser { name: name.into(), role: Role::Operator, password_hash: hash("first") }
}

fn new_session(number: u8, user: &str, password: &str, seconds: u64) -> NewSession {
    NewSession { hash: [number; 32], user: user.into(), password_hash: hash(password), lasts: secs(seconds) }
}

fn new_token(name: &str) -> NewToken {
    NewToken {
        id: format!("id-of-{name}"),
        name: name.into(),
        role: Role::Viewer,
        scope: Scope::default(),
        hash: [7; 32],
        expires_at: None,
    }
}

async fn add(store: &Handle, seconds: u64, user: &NewUser) -> ControlOutcome {
    let actor = Actor::new("ada").note("first day");
    store.add_user(at(seconds), user, &actor).await.expect("add")
}

async fn change(store: &Handle, seconds: u64, user: &str, change: UserChange) -> ControlOutcome {
    store.change_user(at(seconds), user, &change, &Actor::new("bob")).await.expect("change")
}

async fn log_in(store: &Handle, seconds: u64, session: &NewSession) -> bool {
    store.add_session(at(seconds), session).await.expect("log in")
}

async fn user(store: &Handle, name: &str) -> User {
    store.user(name).await.expect("read").expect("a user").user
}

async fn session(store: &Handle, number: u8) -> Option<Session> {
    store.session(&[number; 32]).await.expect("read")
}

async fn touch(store: &Handle, seconds: u64, number: u8, since: u64) -> bool {
    let used =
        SessionUse { hash: [number; 32], unless_since: t(since), lasts: secs(100), max_age: secs(1_000) };
    store.touch_session(at(seconds), &used).await.expect("touch")
}

/// Authors, actions and subjects, the newest first.
async fn audit(store: &Handle) -> Vec<(String, String, String)> {
    let entries = store.inspect().audit(&AuditFilter::default()).await.expect("audit");
    entries.into_iter().map(|entry| (entry.author, entry.action, entry.subject)).collect()
}

fn entry(author: &str, action: &str, subject: &str) -> (String, String, String) {
    (author.into(), action.into(), subject.into())
}

pub async fn a_user_is_kept_with_everything_but_the_password(store: Handle) {
    assert_eq!(store.user("eve").await.expect("read"), None);
    assert_eq!(add(&store, 5, &new_user("eve")).await, ControlOutcome::Done);
    let stored = store.user("eve").await.expect("read").expect("a user");
    let expected = User {
        name: "eve".into(),
        role: Role::Operator,
        created_at: t(5),
        created_by: "ada".into(),
        disabled_at: None,
        last_login_at: None,
    };
    assert_eq!((&stored.user, &stored.password_hash), (&expected, &hash("first")));
    assert!(!format!("{stored:?}").contains("first"), "the hash is not shown");
    let admin = NewUser { role: Role::Admin, ..new_user("Émile") };
    assert_eq!(add(&store, 6, &admin).await, ControlOutcome::Done);
    assert_eq!(
        add(&store, 7, &NewUser { role: Role::Viewer, ..new_user("Zoe") }).await,
        ControlOutcome::Done
    );
    let listed = store.users().await.expect("list");
    assert_eq!(listed, [user(&store, "Zoe").await, stored.user, user(&store, "Émile").await], "by name");
    assert_eq!(
        listed.iter().map(|user| user.role).collect::<Vec<_>>(),
        [Role::Viewer, Role::Operator, Role::Admin]
    );
    assert_eq!(audit(&store).await[2], entry("ada", "create user", "eve"));
}

pub async fn names_of_users_and_tokens_stay_taken(store: Handle) {
    let add_token = async |name: &str| {
        store.add_token(at(2), &new_token(name), &Actor::new("ada")).await.expect("add a token")
    };
    add(&store, 1, &new_user("eve")).await.accepted().expect("added");
    assert_eq!(add_token("deploy").await, ControlOutcome::Done);
    for name in ["eve", "deploy"] {
        assert!(matches!(add(&store, 2, &new_user(name)).await, ControlOutcome::Refused(_)), "{name}");
        assert!(matches!(add_token(name).await, ControlOutcome::Refused(_)), "{name}");
    }
    change(&store, 3, "eve", UserChange::Disable).await.accepted().expect("disabled");
    let revoked = store.revoke_token(at(3), "deploy", &Actor::new("ada")).await;
    revoked.expect("answered").accepted().expect("revoked");
    for name in ["eve", "deploy"] {
        assert!(matches!(add(&store, 4, &new_user(name)).await, ControlOutcome::Refused(_)), "{name}");
        assert!(matches!(add_token(name).await, ControlOutcome::Refused(_)), "{name}");
    }
    assert_eq!(store.users().await.expect("list").len(), 1);
    assert_eq!(store.tokens().await.expect("list").len(), 1);
    assert_eq!(audit(&store).await.len(), 4, "what was refused is not in the audit log");
}

pub async fn every_change_of_a_user_is_in_the_audit_log(store: Handle) {
    add(&store, 1, &new_user("eve")).await.accepted().expect("added");
    add(&store, 1, &new_user("other")).await.accepted().expect("added");
    let change = async |seconds, what| change(&store, seconds, "eve", what).await;
    assert_eq!(change(2, UserChange::Role(Role::Admin)).await, ControlOutcome::Done);
    assert_eq!(change(3, UserChange::Password(hash("second"))).await, ControlOutcome::Done);
    assert_eq!(change(4, UserChange::Disable).await, ControlOutcome::Done);
    let stored = store.user("eve").await.expect("read").expect("a user");
    assert_eq!((stored.user.role, stored.user.disabled_at), (Role::Admin, Some(t(4))));
    assert_eq!(stored.password_hash, hash("second"));
    assert_eq!(change(5, UserChange::Enable).await, ControlOutcome::Done);
    let enabled = user(&store, "eve").await;
    assert_eq!((enabled.role, enabled.disabled_at, enabled.created_at), (Role::Admin, None, t(1)));
    assert_eq!(user(&store, "other").await.role, Role::Operator, "others are left alone");
    for unchanged in [UserChange::Role(Role::Admin), UserChange::Enable] {
        assert!(matches!(change(6, unchanged).await, ControlOutcome::Already(_)));
    }
    assert_eq!(change(7, UserChange::Disable).await, ControlOutcome::Done);
    assert!(matches!(change(8, UserChange::Disable).await, ControlOutcome::Already(_)));
    assert_eq!(user(&store, "eve").await.disabled_at, Some(t(7)), "it stays disabled since the first time");
    let nobody = self::change(&store, 9, "nobody", UserChange::Disable).await;
    assert_eq!(nobody, ControlOutcome::Unknown);
    let actions: Vec<_> = audit(&store).await;
    let expected = ["disable user", "enable user", "disable user", "set password", "set role admin"];
    assert_eq!(actions[..5], expected.map(|action| entry("bob", action, "eve")));
    assert_eq!(actions.len(), 7);
}

pub async fn users_that_cannot_be_kept_are_refused(store: Handle) {
    let bad = [
        new_user(""),
        new_user(&"x".repeat(5_000)),
        new_user("nul\0"),
        new_user("two words"),
        NewUser { role: Role::Worker, ..new_user("eve") },
        NewUser { password_hash: PasswordHash("plain secret".into()), ..new_user("eve") },
        NewUser { password_hash: hash(&"x".repeat(1_000)), ..new_user("eve") },
        NewUser { password_hash: hash("nul\0"), ..new_user("eve") },
    ];
    for user in bad {
        match store.add_user(at(1), &user, &Actor::new("ada")).await {
            Err(Error::Invalid(why)) => assert!(!why.to_string().contains("secret"), "{why}"),
            other => panic!("{user:?}: {other:?}"),
        }
    }
    assert_eq!(store.users().await.expect("list"), []);
    add(&store, 1, &new_user("eve")).await.accepted().expect("added");
    for change in [UserChange::Role(Role::Worker), UserChange::Password(PasswordHash(String::new()))] {
        let refused = store.change_user(at(2), "eve", &change, &Actor::new("ada")).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{change:?}: {refused:?}");
    }
    assert_eq!(audit(&store).await.len(), 1);
}

pub async fn a_session_says_who_its_user_is(store: Handle) {
    add(&store, 1, &new_user("eve")).await.accepted().expect("added");
    assert_eq!(session(&store, 1).await, None);
    assert!(log_in(&store, 10, &new_session(1, "eve", "first", 50)).await);
    let expected = Session {
        user: "eve".into(),
        role: Role::Operator,
        is_disabled: false,
        created_at: t(10),
        expires_at: t(60),
        last_used_at: None,
    };
    assert_eq!(session(&store, 1).await, Some(expected));
    assert_eq!(user(&store, "eve").await.last_login_at, Some(t(10)));
    assert!(log_in(&store, 20, &new_session(2, "eve", "first", 50)).await);
    assert_eq!(user(&store, "eve").await.last_login_at, Some(t(20)));
    assert!(session(&store, 1).await.is_some(), "a user has several sessions");
    assert_eq!(audit(&store).await.len(), 1, "a log-in is no change");
}

pub async fn only_the_checked_password_of_an_enabled_user_makes_a_session(store: Handle) {
    add(&store, 1, &new_user("eve")).await.accepted().expect("added");
    assert!(!log_in(&store, 2, &new_session(1, "eve", "second", 50)).await);
    assert!(!log_in(&store, 2, &new_session(1, "nobody", "first", 50)).await);
    change(&store, 3, "eve", UserChange::Disable).await.accepted().expect("disabled");
    assert!(!log_in(&store, 4, &new_session(1, "eve", "first", 50)).await);
    assert_eq!(session(&store, 1).await, None);
    assert_eq!(user(&store, "eve").await.last_login_at, None);
    change(&store, 5, "eve", UserChange::Enable).await.accepted().expect("enabled");
    assert!(log_in(&store, 6, &new_session(1, "eve", "first", 50)).await);
    assert!(!log_in(&store, 7, &new_session(1, "eve", "first", 500)).await, "a secret is used once");
    assert_eq!(session(&store, 1).await.map(|session| session.expires_at), Some(t(56)));
}

pub async fn no_session_outlives_a_change_of_its_user(store: Handle) {
    for name in ["eve", "other"] {
        add(&store, 1, &new_user(name)).await.accepted().expect("added");
    }
    assert!(log_in(&store, 2, &new_session(100, "other", "first", 5_000)).await);
    let changes = [
        (UserChange::Role(Role::Viewer), "first"),
        (UserChange::Password(hash("second")), "second"),
        (UserChange::Disable, "second"),
    ];
    let mut password = "first";
    for (number, (what, next)) in (1..).zip(changes) {
        assert!(log_in(&store, 3, &new_session(number, "eve", password, 5_000)).await);
        assert!(log_in(&store, 3, &new_session(number + 10, "eve", password, 5_000)).await);
        change(&store, 4, "eve", what).await.accepted().expect("changed");
        assert_eq!((session(&store, number).await, session(&store, number + 10).await), (None, None));
        password = next;
    }
    change(&store, 5, "eve", UserChange::Enable).await.accepted().expect("enabled");
    for number in [1, 2, 3, 11, 12, 13] {
        assert_eq!(session(&store, number).await, None, "no change brings session {number} back");
    }
    assert!(session(&store, 100).await.is_some(), "others are left alone");
    let same = change(&store, 6, "other", UserChange::Role(Role::Operator)).await;
    assert!(matches!(same, ControlOutcome::Already(_)));
    assert!(session(&store, 100).await.is_some(), "nothing has changed");
}

pub async fn a_session_is_lengthened_by_its_use_up_to_its_maximum_age(store: Handle) {
    add(&store, 1, &new_user("eve")).await.accepted().expect("added");
    assert!(log_in(&store, 1_000, &new_session(1, "eve", "first", 100)).await);
    let times = async |number| {
        session(&store, number).await.map(|session| (session.last_used_at, session.expires_at))
    };
    assert!(touch(&store, 1_010, 1, 950).await, "it was not used before");
    assert_eq!(times(1).await, Some((Some(t(1_010)), t(1_110))));
    assert!(!touch(&store, 1_050, 1, 1_010).await, "its use was recorded lately");
    assert_eq!(times(1).await, Some((Some(t(1_010)), t(1_110))));
    assert!(touch(&store, 1_071, 1, 1_011).await);
    assert_eq!(times(1).await, Some((Some(t(1_071)), t(1_171))));
    assert!(!touch(&store, 1_171, 1, 1_111).await, "it has expired");
    assert_eq!(times(1).await, Some((Some(t(1_071)), t(1_171))), "and stays so until it is pruned");

    assert!(log_in(&store, 1_000, &new_session(2, "eve", "first", 950)).await);
    assert!(touch(&store, 1_930, 2, 1_870).await);
    assert_eq!(times(2).await, Some((Some(t(1_930)), t(2_000))), "its maximum age");
    assert!(touch(&store, 1_999, 2, 1_939).await);
    assert_eq!(times(2).await, Some((Some(t(1_999)), t(2_000))));
    assert!(!touch(&store, 2_000, 2, 1_999).await);

    assert!(log_in(&store, 3_000, &new_session(3, "eve", "first", 5_000)).await);
    assert!(touch(&store, 3_010, 3, 2_950).await);
    assert_eq!(times(3).await, Some((Some(t(3_010)), t(8_000))), "a use shortens no session");
    assert!(!touch(&store, 1, 9, 1).await, "there is no such session");
}

pub async fn sessions_end_one_by_one_or_all_at_once(store: Handle) {
    for name in ["eve", "other"] {
        add(&store, 1, &new_user(name)).await.accepted().expect("added");
    }
    for number in 1..=3 {
        assert!(log_in(&store, 2, &new_session(number, "eve", "first", 5_000)).await);
    }
    assert!(log_in(&store, 2, &new_session(4, "other", "first", 5_000)).await);
    assert!(store.end_session(&[1; 32]).await.expect("ended"));
    assert!(!store.end_session(&[1; 32]).await.expect("read"), "it has ended");
    assert_eq!(session(&store, 1).await, None);
    assert!(session(&store, 2).await.is_some());
    let end = async |name: &str| store.end_sessions(at(3), name, &Actor::new("bob")).await.expect("ended");
    assert_eq!(end("eve").await, ControlOutcome::Done);
    assert!(matches!(end("eve").await, ControlOutcome::Already(_)));
    assert_eq!(end("nobody").await, ControlOutcome::Unknown);
    assert_eq!((session(&store, 2).await, session(&store, 3).await), (None, None));
    assert!(session(&store, 4).await.is_some(), "others are left alone");
    assert_eq!(user(&store, "eve").await.disabled_at, None, "the user may log in again");
    let audit = audit(&store).await;
    assert_eq!((audit.len(), &audit[0]), (3, &entry("bob", "end sessions", "eve")));
}

pub async fn expired_sessions_are_pruned_in_batches(store: Handle) {
    add(&store, 1, &new_user("eve")).await.accepted().expect("added");
    for number in 1..=5 {
        assert!(log_in(&store, 10, &new_session(number, "eve", "first", 10 * u64::from(number))).await);
    }
    let prune = async |seconds, limit| store.prune_sessions(at(seconds), limit).await.expect("pruned");
    let left = async || {
        let mut left = Vec::new();
        for number in 1..=5 {
            left.extend(session(&store, number).await.map(|_| number));
        }
        left
    };
    assert_eq!(prune(19, 10).await, 0);
    assert_eq!(prune(50, 3).await, 3, "a batch, those first that expired first");
    assert_eq!(left().await, [4, 5]);
    assert_eq!(prune(50, 3).await, 1);
    assert_eq!((left().await, prune(50, 3).await), (vec![5], 0));
    assert_eq!(prune(1_000_000, 0).await, 1, "a batch has at least one");
}

pub async fn a_log_in_racing_a_new_password_leaves_no_session(store: Handle) {
    for n in 0..ROUNDS {
        let name = format!("user-{n}");
        add(&store, 1, &new_user(&name)).await.accepted().expect("added");
        let number = u8::try_from(n).expect("a few rounds");
        let new = new_session(number, &name, "first", 5_000);
        let log_in = async move |store: Handle| {
            for _ in 0..n % 5 {
                tokio::task::yield_now().await;
            }
            store.add_session(at(2), &new).await.expect("answered")
        };
        let change = async move |store: Handle| {
            let changed = UserChange::Password(hash("second"));
            let actor = Actor::new("bob");
            store.change_user(at(2), &name, &changed, &actor).await.expect("changed")
        };
        let (_logged_in, changed) = race(&store, log_in, change).await;
        assert_eq!(changed, ControlOutcome::Done);
        assert_eq!(session(&store, number).await, None, "round {n}");
    }
}

pub async fn of_eight_users_and_tokens_of_one_name_one_is_added(store: Handle) {
    for n in 0..ROUNDS {
        let name = format!("name-{n}");
        let added = run_concurrently(&store, 8, |task, store: Handle| {
            let name = name.clone();
            async move {
                let actor = Actor::new("ada");
                let added = if task % 2 == 0 {
                    store.add_user(at(1), &new_user(&name), &actor).await
                } else {
                    store.add_token(at(1), &new_token(&name), &actor).await
                };
                added.expect("answered") == ControlOutcome::Done
            }
        });
        let added = added.await;
        assert_eq!(added.iter().filter(|added| **added).count(), 1, "round {n}: {added:?}");
    }
    let (users, tokens) =
        (store.users().await.expect("list").len(), store.tokens().await.expect("list").len());
    assert_eq!(users + tokens, ROUNDS as usize);
}
