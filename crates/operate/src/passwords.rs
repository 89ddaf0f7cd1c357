//! Passwords: which are accepted, and the slow hashes by which they are checked.
//!
//! A password is short and chosen by a person, so its hash must cost so much that trying the passwords of a stolen store takes too long.
//! The hash is argon2id, with its parameters and its salt as PHC text: other parameters of a later version leave old passwords valid. A hash
//! is made on a thread for work that blocks, and at most [`AT_ONCE`] at a time.

use argon2::{
    Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version, password_hash::Error as HashError,
};
use tokio::sync::Semaphore;
use windlass_env::Env;
use windlass_store::PasswordHash;
use windlass_workflow::Error;

use crate::tokens::random;

/// The fewest characters of a password. With fewer, even the slow hash can be tried out.
const MIN_CHARS: usize = 10;
/// The most bytes of a password: more than any sentence that people remember, and little enough that its length costs nothing.
pub(crate) const MAX_BYTES: usize = 1_000;

/// The memory of a hash in KiB, how often it is passed over, and by how many threads. This is OWASP's recommendation for argon2id with the
/// memory that any server has: some 35 ms of one core.
const MEMORY_KIB: u32 = 19 << 10;
const PASSES: u32 = 2;
const LANES: u32 = 1;
const PARAMS: Params = match Params::new(MEMORY_KIB, PASSES, LANES, None) {
    Ok(params) => params,
    Err(_) => panic!("the parameters are in the range of argon2"),
};
/// The bytes of a salt: as many as the authors of argon2 recommend.
const SALT_BYTES: usize = 16;

/// The most hashes that this process makes at once: many log-ins at a time take 38 MiB and two cores, and wait for each other.
const AT_ONCE: usize = 2;
static TURNS: Semaphore = Semaphore::const_new(AT_ONCE);

/// Makes and checks hashes of passwords.
#[derive(Clone, Debug)]
pub(crate) struct Passwords {
    params: Params,
}

impl Default for Passwords {
    fn default() -> Passwords {
        Passwords { params: PARAMS }
    }
}

/// Refuses a password that is too short or too long. Returns why, and what to do.
pub(crate) fn check_password(password: &str) -> Result<(), String> {
    let chars = password.chars().count();
    if chars < MIN_CHARS {
        return Err(format!("the password has {chars} characters; choose one with at least {MIN_CHARS}"));
    }
    if password.len() > MAX_BYTES {
        let bytes = password.len();
        return Err(format!("the password has {bytes} bytes; choose one with at most {MAX_BYTES}"));
    }
    Ok(())
}

impl Passwords {
    /// The least work that argon2 can be set to, for tests.
    #[cfg(test)]
    pub(crate) fn cheap() -> Passwords {
        Passwords { params: Params::new(Params::MIN_M_COST, 1, 1, None).expect("in the range of argon2") }
    }

    fn argon2(&self) -> Argon2<'static> {
        Argon2::new(Algorithm::Argon2id, Version::V0x13, self.params.clone())
    }

    /// Hashes a password.
    pub(crate) async fn hash(&self, env: &Env, password: &str) -> Result<PasswordHash, Error> {
        let salt = random(env)?;
        let (argon2, password) = (self.argon2(), password.to_owned());
        let hashed =
            in_turn(env, move || argon2.hash_password_with_salt(password.as_bytes(), &salt[..SALT_BYTES]));
        Ok(PasswordHash(hashed.await?.to_string()))
    }

    /// Returns whether this is the password that was hashed. Without a hash it is not, and finding that out takes as long.
    pub(crate) async fn verify(
        &self,
        env: &Env,
        password: &str,
        hash: Option<&PasswordHash>,
    ) -> Result<bool, Error> {
        let (argon2, password, hash) = (self.argon2(), password.to_owned(), hash.cloned());
        let verified = in_turn(env, move || {
            let Some(PasswordHash(hash)) = hash else {
                return argon2.hash_password_with_salt(password.as_bytes(), &[0; SALT_BYTES]).map(|_| false);
            };
            match argon2.verify_password(password.as_bytes(), hash.as_str()) {
                Ok(()) => Ok(true),
                Err(HashError::PasswordInvalid) => Ok(false),
                Err(error) => Err(error),
            }
        });
        verified.await
    }
}

/// Does the work of a hash when it is its turn. A caller that gives up does not end the work, so the turn goes along with it.
async fn in_turn<T: Send + 'static>(
    env: &Env,
    work: impl FnOnce() -> Result<T, HashError> + Send + 'static,
) -> Result<T, Error> {
    let failed = |why: &dyn std::fmt::Display| {
        Error::Setup(format!("a password cannot be checked or hashed ({why}); set the user's password anew"))
    };
    let turn = TURNS.acquire().await.map_err(|error| failed(&error))?;
    let done = env.spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    done.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn passwords_are_neither_short_nor_endless() {
        assert!(check_password("ten letter").is_ok());
        assert!(check_password("zehn Ä Ö Ü").is_ok(), "characters count, and not bytes");
        assert!(check_password(&"x".repeat(MAX_BYTES)).is_ok());
        let short = check_password("nine char").expect_err("too short");
        assert_eq!(short, "the password has 9 characters; choose one with at least 10");
        assert!(check_password("").is_err() && check_password("ÄÖÜÄÖÜ").is_err());
        assert!(check_password(&"ä".repeat(MAX_BYTES / 2 + 1)).expect_err("too long").contains("1002 bytes"));
    }

    #[tokio::test]
    async fn a_hash_fits_its_password_alone_and_says_how_it_was_made() {
        let (env, cheap) = (Env::real(), Passwords::cheap());
        let hash = cheap.hash(&env, "correct horse").await.expect("hashed");
        assert!(hash.0.starts_with("$argon2id$v=19$m=8,t=1,p=1$"), "{}", hash.0);
        assert_ne!(cheap.hash(&env, "correct horse").await.expect("hashed"), hash, "each has its own salt");
        assert!(cheap.verify(&env, "correct horse", Some(&hash)).await.expect("checked"));
        for wrong in ["correct hors", "correct horse ", ""] {
            assert!(!cheap.verify(&env, wrong, Some(&hash)).await.expect("checked"), "{wrong:?}");
        }
        assert!(!cheap.verify(&env, "correct horse", None).await.expect("checked"));
        // The parameters are those of the hash, and not those of today.
        let other = Passwords { params: Params::new(16, 2, 1, None).expect("in range") };
        assert!(other.verify(&env, "correct horse", Some(&hash)).await.expect("checked"));
        for broken in ["", "$argon2id$v=19$m=8,t=1,p=1$", "$2b$12$abcdefghijklmnopqrstuv", "$argon2id$x"] {
            let hash = PasswordHash(broken.into());
            assert_ne!(cheap.verify(&env, "", Some(&hash)).await.ok(), Some(true), "{broken}");
        }
    }

    /// The real parameters are in every hash that a store keeps.
    #[tokio::test]
    async fn the_parameters_are_those_that_owasp_recommends() {
        let hash = Passwords::default().hash(&Env::real(), "correct horse").await.expect("hashed");
        assert!(hash.0.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", hash.0);
        assert!(hash.0.len() < 120, "{}", hash.0);
    }

    #[tokio::test]
    async fn only_a_few_hashes_are_made_at_once() {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        let most = futures_util::future::join_all((0..16).map(async |_| {
            in_turn(&Env::real(), || {
                let running = RUNNING.fetch_add(1, SeqCst) + 1;
                std::thread::yield_now();
                RUNNING.fetch_sub(1, SeqCst);
                Ok(running)
            })
            .await
            .expect("done")
        }));
        assert!(most.await.into_iter().max().is_some_and(|most| most <= AT_ONCE));
    }
}
