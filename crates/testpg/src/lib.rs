//! Private, throw-away PostgreSQL servers for tests and benchmarks.
//!
//! [`Cluster::start`] makes a database cluster in a temporary folder, runs a server on it that listens
//! on a free loopback port only, and creates the database `windlass`. Everything is synchronous and uses
//! the programs of an installed PostgreSQL; there is no client library in here.
//!
//! What always holds:
//!
//! * The server is durable: `fsync`, `synchronous_commit` and `full_page_writes` are on unless a caller
//!   turns one off by [`Builder::setting`]. What was committed is there after [`Cluster::kill`] and
//!   [`Cluster::restart`].
//! * The port and the data of a cluster never change during its life, so a URL stays good over restarts.
//! * No server outlives its owner: dropping the [`Cluster`] ends the server and removes the folder, and
//!   when the owning process dies without dropping it (SIGKILL, `abort`, `exit`) a small watcher process
//!   does the same.
//! * Neither the server nor the watcher holds the owner's standard input, output or error.
//! * As root, nothing of PostgreSQL runs as root: an unprivileged account of the machine is used.
//!
//! A [`Proxy`] stands between a client and a server and does what networks do.
//!
//! ```no_run
//! let mut cluster = windlass_testpg::Cluster::start()?;
//! cluster.sql("windlass", "create table t (n int); insert into t values (1)")?;
//! cluster.kill()?; // as a crash of the machine would
//! cluster.restart()?;
//! assert_eq!(cluster.sql("windlass", "select n from t")?, "1");
//! # Ok::<(), windlass_testpg::Error>(())
//! ```

#[cfg(not(unix))]
compile_error!("windlass-testpg runs PostgreSQL through Unix process features; build it on Linux or macOS");

mod account;
mod binaries;
mod builder;
mod cluster;
mod error;
mod leftovers;
mod port;
mod processes;
mod proxy;
mod server;
mod watcher;

pub use builder::Builder;
pub use cluster::Cluster;
pub use error::Error;
pub use proxy::Proxy;
