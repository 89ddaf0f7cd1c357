//! Users: creating and changing them, and their sessions, from the log-in to the end.
//!
//! A user proves who they are once, with name and password, and gets the secret of a session, which the dashboard keeps in a cookie. The
//! secret has 256 random bits, so the store keeps a fast hash of it, as for tokens; the password is short, and has a slow one (see
//! `passwords`). Every request reads the session with the user's current role, so that no change of a user waits for anything.

use std::{fmt, time::Duration};

use windlass_model::{Role, limits::check_name};
use windlass_store::{
    Actor, ControlOutcome, NewSession, NewUser, Session, SessionUse, StoredUser, User, UserChange,
};
use windlass_workflow::Error;

use crate::{
    Control, Operator,
    passwords::{MAX_BYTES, check_password},
    tokens::{hex, random},
};

/// A session ends after this long without use: a working day, so that nobody is asked twice a day, and a browser left open does not stay
/// logged in over night.
pub const SESSION_IDLE: Duration = Duration::from_secs(12 * 3_600);
/// A session ends this long after the log-in, however much it is used: a stolen cookie is worth no more than a week.
pub const SESSION_MAX_AGE: Duration = Duration::from_secs(7 * 86_400);
/// How often the use of a session is recorded. It makes a session end up to a minute early, and costs a write a minute.
const USE_RECORDED_EVERY: Duration = Duration::from_secs(60);
/// The subject of a failed log-in in the audit log, if no user has the name. No user can have this one: it has spaces.
const UNKNOWN_USER: &str = "an unknown user";
/// The characters of a session's secret.
const SECRET_CHARS: usize = 64;

/// A session that has begun.
#[derive(Clone, PartialEq, Eq)]
pub struct LoggedIn {
    /// Whose it is, and how long it lasts.
    pub session: Session,
    /// Its secret, 64 hexadecimal digits. It cannot be read again, and is not shown by `{:?}`.
    pub secret: String,
}

impl fmt::Debug for LoggedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggedIn").field("session", &self.session).finish_non_exhaustive()
    }
}

/// Why somebody may not log in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoginRefusal {
    /// There is no such user, or the password is another one. These are not told apart, and take the same time, so that nobody
    /// learns who is a user.
    Wrong,
    /// The password is right, and the user is disabled.
    Disabled,
}

impl Control {
    /// Creates a user. Refused if there is or was a user or a token of this name, or if the password has fewer than 10 characters or more
    /// than 1,000 bytes.
    pub async fn create_user(
        &self,
        name: &str,
        role: Role,
        password: &str,
    ) -> Result<Result<User, String>, Error> {
        if let Err(why) = check_password(password) {
            return Ok(Err(why));
        }
        let operator = self.operator();
        let password_hash = operator.passwords().hash(operator.env(), password).await?;
        let new = NewUser { name: name.to_owned(), role, password_hash };
        match operator.store().add_user(None, &new, self.actor()).await? {
            ControlOutcome::Refused(why) => return Ok(Err(why)),
            outcome => debug_assert_eq!(outcome, ControlOutcome::Done),
        }
        let stored = operator.store().user(name).await?;
        let stored = stored.ok_or_else(|| Error::Setup(format!("the user {name} is gone already")))?;
        Ok(Ok(stored.user))
    }

    /// Gives a user another password, and ends all their sessions. Refused as by [`Control::create_user`].
    pub async fn set_password(&self, user: &str, password: &str) -> Result<ControlOutcome, Error> {
        if let Err(why) = check_password(password) {
            return Ok(ControlOutcome::Refused(why));
        }
        let operator = self.operator();
        let hash = operator.passwords().hash(operator.env(), password).await?;
        self.change_user(user, UserChange::Password(hash)).await
    }

    /// Gives a user another password, if the current one is right, and ends all their sessions. Whoever calls this for requests from a
    /// network must limit how often somebody may try.
    pub async fn change_own_password(
        &self,
        user: &str,
        current: &str,
        password: &str,
    ) -> Result<ControlOutcome, Error> {
        let operator = self.operator();
        let stored = operator.store().user(user).await?;
        let hash = stored.as_ref().map(|stored| &stored.password_hash);
        // Nobody has a password that long.
        let is_right =
            current.len() <= MAX_BYTES && operator.passwords().verify(operator.env(), current, hash).await?;
        match (stored, is_right) {
            (None, _) => Ok(ControlOutcome::Unknown),
            (Some(_), false) => {
                Ok(ControlOutcome::Refused("the current password is another one; type it again".into()))
            }
            (Some(_), true) => self.set_password(user, password).await,
        }
    }

    /// Gives a user another role, and ends all their sessions.
    pub async fn set_role(&self, user: &str, role: Role) -> Result<ControlOutcome, Error> {
        self.change_user(user, UserChange::Role(role)).await
    }

    /// Accepts a user no longer, and ends all their sessions. Users are never deleted, so that a name in the audit log means one person.
    pub async fn disable_user(&self, user: &str) -> Result<ControlOutcome, Error> {
        self.change_user(user, UserChange::Disable).await
    }

    /// Accepts a disabled user again.
    pub async fn enable_user(&self, user: &str) -> Result<ControlOutcome, Error> {
        self.change_user(user, UserChange::Enable).await
    }

    /// Ends all sessions of a user, who may log in again.
    pub async fn end_sessions(&self, user: &str) -> Result<ControlOutcome, Error> {
        Ok(self.operator().store().end_sessions(None, user, self.actor()).await?)
    }

    async fn change_user(&self, user: &str, change: UserChange) -> Result<ControlOutcome, Error> {
        Ok(self.operator().store().change_user(None, user, &change, self.actor()).await?)
    }
}

impl Operator {
    /// All users, disabled ones included, by name.
    pub async fn users(&self) -> Result<Vec<User>, Error> {
        Ok(self.store().users().await?)
    }

    /// Begins a session for the user with this name and password. The audit log has every attempt, with `client`, which says where it is
    /// from. Whoever calls this for requests from a network must limit how often somebody may try.
    pub async fn log_in(
        &self,
        name: &str,
        password: &str,
        client: &str,
    ) -> Result<Result<LoggedIn, LoginRefusal>, Error> {
        // Nobody has such a password, so that it says nothing about users.
        if password.len() > MAX_BYTES {
            return Ok(Err(LoginRefusal::Wrong));
        }
        let stored = match check_name("user name", name) {
            Ok(()) => self.store().user(name).await?,
            Err(_) => None,
        };
        let known = stored.as_ref().map(|stored| stored.user.name.clone());
        let answer = self.begin_session(stored, password).await?;
        self.record_log_in(known.as_deref(), &answer, client).await?;
        Ok(answer)
    }

    async fn begin_session(
        &self,
        stored: Option<StoredUser>,
        password: &str,
    ) -> Result<Result<LoggedIn, LoginRefusal>, Error> {
        let hash = stored.as_ref().map(|stored| &stored.password_hash);
        let is_right = self.passwords().verify(self.env(), password, hash).await?;
        let Some(StoredUser { user, password_hash }) = stored.filter(|_| is_right) else {
            return Ok(Err(LoginRefusal::Wrong));
        };
        if user.disabled_at.is_some() {
            return Ok(Err(LoginRefusal::Disabled));
        }
        let secret = hex(&random(self.env())?);
        let hash = hash_of(&secret);
        let new = NewSession { hash, user: user.name, password_hash, lasts: SESSION_IDLE };
        // The user was changed while the password was checked.
        if !self.store().add_session(None, &new).await? {
            return Ok(Err(LoginRefusal::Wrong));
        }
        let session = self.store().session(&hash).await?;
        Ok(session.map(|session| LoggedIn { session, secret }).ok_or(LoginRefusal::Wrong))
    }

    /// Adds an attempt to log in to the audit log. A name that nobody has is left out: it may be a password that was typed into the wrong
    /// field. There is an entry all the same, so that an attempt takes as long as that of a user.
    async fn record_log_in(
        &self,
        known: Option<&str>,
        answer: &Result<LoggedIn, LoginRefusal>,
        client: &str,
    ) -> Result<(), Error> {
        let subject = known.unwrap_or(UNKNOWN_USER);
        let (author, action) = match answer {
            Ok(_) => (format!("{subject}@{client}"), "log in"),
            Err(LoginRefusal::Wrong) => (client.to_owned(), "failed log-in"),
            Err(LoginRefusal::Disabled) => (client.to_owned(), "failed log-in of a disabled user"),
        };
        Ok(self.store().control().record_audit(None, action, subject, &Actor::new(author)).await?)
    }

    /// Returns the session with this secret, if it has not ended, and records that it was used. Reads the store at every call, so that it
    /// has the user's current role, and the session of a disabled user is refused at once.
    pub async fn session(&self, secret: &str) -> Result<Option<Session>, Error> {
        if !is_secret(secret) {
            return Ok(None);
        }
        let hash = hash_of(secret);
        let now = self.env().now();
        let is_valid = |session: &Session| !session.is_disabled && session.expires_at > now;
        let Some(session) = self.store().session(&hash).await?.filter(is_valid) else { return Ok(None) };
        let recorded_since = now - USE_RECORDED_EVERY;
        if session.last_used_at.unwrap_or(session.created_at) < recorded_since {
            let used = SessionUse {
                hash,
                unless_since: recorded_since,
                lasts: SESSION_IDLE,
                max_age: SESSION_MAX_AGE,
            };
            self.store().touch_session(None, &used).await?;
        }
        Ok(Some(session))
    }

    /// Ends the session with this secret. Returns whether there was one.
    pub async fn log_out(&self, secret: &str) -> Result<bool, Error> {
        Ok(is_secret(secret) && self.store().end_session(&hash_of(secret)).await?)
    }
}

/// Whether a text may be the secret of a session. Others need no read of the store.
fn is_secret(text: &str) -> bool {
    text.len() == SECRET_CHARS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn hash_of(secret: &str) -> [u8; 32] {
    *blake3::hash(secret.as_bytes()).as_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_env::{Env, IdSource, VirtualClock};
    use windlass_model::Time;
    use windlass_store::{AuditFilter, Fut, Now, Store, Wrapper, memory::Memory};
    use windlass_workflow::{
        Data,
        engine::{Codecs, Reader, Services},
    };

    use super::*;
    use crate::passwords::Passwords;

    const START: Time = Time(1_800_000_000_000_000);
    const PASSWORD: &str = "correct horse";
    const CLIENT: &str = "10.0.0.1";

    /// A store whose clock is virtual.
    struct VirtualStore {
        store: Memory,
        clock: Arc<VirtualClock>,
    }

    impl Wrapper for VirtualStore {
        fn inner(&self) -> &dyn Store {
            &self.store
        }

        fn add_session<'a>(&'a self, _now: Now, session: &'a NewSession) -> Fut<'a, bool> {
            windlass_store::Users::add_session(&self.store, Some(self.clock.now()), session)
        }

        fn touch_session<'a>(&'a self, _now: Now, used: &'a SessionUse) -> Fut<'a, bool> {
            windlass_store::Users::touch_session(&self.store, Some(self.clock.now()), used)
        }
    }

    struct Fixture {
        operator: Operator,
        clock: Arc<VirtualClock>,
    }

    impl Fixture {
        /// A store with the user `eve`, an operator.
        async fn new() -> Fixture {
            let clock = Arc::new(VirtualClock::new(START));
            let env = Env::with_clock(Arc::clone(&clock));
            let store: Arc<dyn Store> =
                Arc::new(VirtualStore { store: Memory::new(), clock: Arc::clone(&clock) });
            let services = Services {
                ids: IdSource::new(env.clone()),
                reader: Arc::new(Reader::new(env.clone(), Arc::clone(&store))),
                store,
                codecs: Arc::new(Codecs::default()),
                data: Data::default(),
                env,
            };
            let operator = Operator::new(Arc::new(services), Arc::default(), || {});
            let fixture = Fixture { operator: operator.with_passwords(Passwords::cheap()), clock };
            let created = fixture.control().create_user("eve", Role::Operator, PASSWORD).await;
            created.expect("created").expect("accepted");
            fixture
        }

        fn control(&self) -> Control {
            self.operator.control("ada")
        }

        fn advance(&self, span: Duration) {
            self.clock.set(self.clock.now() + span);
        }

        async fn log_in(&self, name: &str, password: &str) -> Result<LoggedIn, LoginRefusal> {
            self.operator.log_in(name, password, CLIENT).await.expect("answered")
        }

        /// What the audit log has, newest first: action, subject and author.
        async fn audit(&self) -> Vec<(String, String, String)> {
            let entries = self.operator.inspect().audit(&AuditFilter::default()).await.expect("audit");
            entries.into_iter().map(|entry| (entry.action, entry.subject, entry.author)).collect()
        }

        async fn session(&self, secret: &str) -> Option<Session> {
            self.operator.session(secret).await.expect("read")
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_user_logs_in_and_out() {
        let fixture = Fixture::new().await;
        let LoggedIn { session, secret } = fixture.log_in("eve", PASSWORD).await.expect("logged in");
        assert_eq!((session.user.as_str(), session.role), ("eve", Role::Operator));
        assert_eq!((session.created_at, session.expires_at), (START, START + SESSION_IDLE));
        let again = fixture.log_in("eve", PASSWORD).await.expect("logged in");
        assert_ne!(again.secret, secret);
        assert!(!format!("{again:?}").contains(&again.secret));
        assert_eq!(fixture.session(&secret).await, Some(session));
        assert!(fixture.operator.log_out(&secret).await.expect("ended"));
        assert!(!fixture.operator.log_out(&secret).await.expect("read"));
        assert_eq!(fixture.session(&secret).await, None);
        assert!(fixture.session(&again.secret).await.is_some(), "the other one goes on");
        for other in ["", "eve", &"0".repeat(SECRET_CHARS), &"g".repeat(SECRET_CHARS), &"f".repeat(100_000)] {
            assert_eq!(fixture.session(other).await, None);
            assert!(!fixture.operator.log_out(other).await.expect("read"));
        }
    }

    #[tokio::test]
    async fn nobody_learns_who_is_a_user() {
        let fixture = Fixture::new().await;
        let long = "x".repeat(100_000);
        let wrong =
            [("eve", "correct hors"), ("eve", ""), ("nobody", PASSWORD), ("", PASSWORD), ("nul\0", "x")];
        for (name, password) in wrong.into_iter().chain([("eve", long.as_str()), (long.as_str(), PASSWORD)]) {
            let refused = fixture.log_in(name, password).await;
            assert_eq!(refused, Err(LoginRefusal::Wrong), "{:.20}, {password:.20}", name);
        }
        fixture.control().disable_user("eve").await.expect("answered").accepted().expect("disabled");
        assert_eq!(fixture.log_in("eve", "correct hors").await, Err(LoginRefusal::Wrong));
        assert_eq!(fixture.log_in("eve", PASSWORD).await, Err(LoginRefusal::Disabled));
        fixture.control().enable_user("eve").await.expect("answered").accepted().expect("enabled");
        assert!(fixture.log_in("eve", PASSWORD).await.is_ok());
    }

    #[tokio::test]
    async fn a_session_ends_without_use_and_at_its_maximum_age() {
        let fixture = Fixture::new().await;
        let idle = fixture.log_in("eve", PASSWORD).await.expect("logged in").secret;
        let used = fixture.log_in("eve", PASSWORD).await.expect("logged in").secret;
        fixture.advance(MINUTE / 2);
        fixture.session(&used).await.expect("it goes on");
        let unused = fixture.session(&used).await.expect("it goes on");
        assert_eq!(unused.last_used_at, None, "a use within a minute is not recorded");
        fixture.advance(SESSION_IDLE - MINUTE);
        assert!(fixture.session(&used).await.is_some());
        fixture.advance(MINUTE / 2);
        assert_eq!(fixture.session(&idle).await, None, "it was not used for 12 hours");
        let lengthened = fixture.session(&used).await.expect("it was used");
        assert_eq!(lengthened.expires_at, START + SESSION_IDLE * 2 - MINUTE / 2);
        while fixture.session(&used).await.is_some() {
            fixture.advance(Duration::from_secs(3_600));
        }
        let lasted = fixture.clock.now() - START;
        assert!((SESSION_MAX_AGE..SESSION_MAX_AGE + MINUTE * 60).contains(&lasted), "{lasted:?}");
    }

    #[tokio::test]
    async fn a_change_of_a_user_ends_the_sessions() {
        let fixture = Fixture::new().await;
        let control = fixture.control();
        let first = fixture.log_in("eve", PASSWORD).await.expect("logged in").secret;
        assert_eq!(control.set_role("eve", Role::Admin).await.expect("answered"), ControlOutcome::Done);
        assert_eq!(fixture.session(&first).await, None);
        let second = fixture.log_in("eve", PASSWORD).await.expect("logged in");
        assert_eq!(second.session.role, Role::Admin);
        let changed = control.set_password("eve", "battery staple").await.expect("answered");
        assert_eq!(changed, ControlOutcome::Done);
        assert_eq!(fixture.session(&second.secret).await, None);
        assert_eq!(fixture.log_in("eve", PASSWORD).await, Err(LoginRefusal::Wrong));
        let third = fixture.log_in("eve", "battery staple").await.expect("logged in").secret;
        assert_eq!(control.end_sessions("eve").await.expect("answered"), ControlOutcome::Done);
        assert_eq!(fixture.session(&third).await, None);
        let mut actions: Vec<String> = fixture.audit().await.into_iter().map(|(action, ..)| action).collect();
        actions.retain(|action| !action.contains("log"));
        assert_eq!(actions, ["end sessions", "set password", "set role admin", "create user"]);
    }

    #[tokio::test]
    async fn attempts_to_log_in_are_in_the_audit_log() {
        let fixture = Fixture::new().await;
        fixture.log_in("eve", PASSWORD).await.expect("logged in");
        for (name, password) in [("eve", "wrong"), ("hunter2 is my password", "eve"), ("hunter2", "eve")] {
            assert!(fixture.log_in(name, password).await.is_err());
        }
        fixture.control().disable_user("eve").await.expect("answered").accepted().expect("disabled");
        assert_eq!(fixture.log_in("eve", PASSWORD).await, Err(LoginRefusal::Disabled));
        let audit = fixture.audit().await;
        let texts: Vec<String> =
            audit.iter().map(|(action, subject, author)| format!("{author}: {action}, {subject}")).collect();
        assert_eq!(
            texts,
            [
                "10.0.0.1: failed log-in of a disabled user, eve",
                "ada: disable user, eve",
                "10.0.0.1: failed log-in, an unknown user",
                "10.0.0.1: failed log-in, an unknown user",
                "10.0.0.1: failed log-in, eve",
                "eve@10.0.0.1: log in, eve",
                "ada: create user, eve",
            ]
        );
        assert!(check_name("user name", UNKNOWN_USER).is_err());
    }

    #[tokio::test]
    async fn a_user_changes_their_own_password() {
        let fixture = Fixture::new().await;
        let (control, new) = (fixture.operator.control("eve"), "battery staple");
        let secret = fixture.log_in("eve", PASSWORD).await.expect("logged in").secret;
        for (current, password) in [("wrong", new), ("", new), (PASSWORD, "short"), (&"x".repeat(9_999), new)]
        {
            let refused = control.change_own_password("eve", current, password).await.expect("answered");
            assert!(matches!(refused, ControlOutcome::Refused(_)), "{refused:?}");
        }
        assert!(fixture.session(&secret).await.is_some(), "nothing has changed");
        let changed = control.change_own_password("eve", PASSWORD, new).await.expect("answered");
        assert_eq!(changed, ControlOutcome::Done);
        assert_eq!(fixture.session(&secret).await, None);
        assert!(fixture.log_in("eve", new).await.is_ok());
        let unknown = control.change_own_password("nobody", PASSWORD, new).await.expect("answered");
        assert_eq!(unknown, ControlOutcome::Unknown);
    }

    #[tokio::test]
    async fn bad_passwords_and_names_are_refused() {
        let fixture = Fixture::new().await;
        let control = fixture.control();
        for (name, role, password) in [("bob", Role::Viewer, "short"), ("eve", Role::Viewer, PASSWORD)] {
            let refused = control.create_user(name, role, password).await.expect("answered");
            assert!(refused.expect_err("refused").contains("; choose"), "{name}");
        }
        assert!(control.create_user("", Role::Viewer, PASSWORD).await.is_err());
        assert!(control.create_user("bob", Role::Worker, PASSWORD).await.is_err());
        let refused = control.set_password("eve", "short").await.expect("answered");
        assert!(matches!(refused, ControlOutcome::Refused(_)));
        let unknown = control.set_password("nobody", PASSWORD).await.expect("answered");
        assert_eq!(unknown, ControlOutcome::Unknown);
        assert!(fixture.log_in("eve", PASSWORD).await.is_ok(), "nothing has changed");
        let users = fixture.operator.users().await.expect("listed");
        assert_eq!(users.iter().map(|user| user.name.as_str()).collect::<Vec<_>>(), ["eve"]);
    }
}
