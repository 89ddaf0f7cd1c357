//! What can go wrong with a throw-away server.
//!
//! Every message says what failed, why that matters and what to do next; nothing here needs the reader to
//! know how this crate works inside.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a throw-away PostgreSQL server could not be started, ended or used.
///
/// Its debug form is its text too, as tests mostly unwrap.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No PostgreSQL server programs were found.
    #[error(
        "PostgreSQL's server programs ({needed}) were not found. Tests and benchmarks start a private \
         server of their own and need them; no running server is used. Install PostgreSQL \
         (Debian/Ubuntu: `apt-get install postgresql`, Fedora/RHEL: `dnf install postgresql-server`, \
         macOS: `brew install postgresql`) or set WINDLASS_PG_BIN to the folder that holds them. \
         Looked in: {searched}"
    )]
    NotInstalled {
        /// The programs that must be in one folder.
        needed: String,
        /// The places that were looked at, in order.
        searched: String,
    },

    /// `WINDLASS_PG_BIN` names a folder that lacks some of the programs.
    #[error(
        "WINDLASS_PG_BIN is {}, but that folder has no {missing}. It must hold all of PostgreSQL's server \
         and client programs; correct it, or unset it to have the usual places searched",
        folder.display()
    )]
    BadBinFolder {
        /// The folder that the variable names.
        folder: PathBuf,
        /// The programs that are not there.
        missing: String,
    },

    /// The process is root and no unprivileged account exists to run the server.
    #[error(
        "this process runs as root, PostgreSQL refuses to run as root, and /etc/passwd has neither a user \
         `postgres` nor a user `nobody` to run it as. Run as an ordinary user, or add one \
         (`useradd --system postgres`)"
    )]
    NoAccount,

    /// The unprivileged account cannot get into the folder in which the cluster is to be.
    #[error(
        "user `{user}`, as whom the server must run because this process is root, cannot enter {}. \
         Choose another folder (set TMPDIR, or `Builder::parent`) or allow it (`chmod o+x`)",
        folder.display()
    )]
    Unreachable {
        /// The unprivileged user.
        user: String,
        /// The folder that this user cannot enter.
        folder: PathBuf,
    },

    /// A file or folder of the cluster could not be made, read or removed.
    #[error("cannot {action} {}: {source}. Check the space left and the rights there", path.display())]
    Files {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// A program could not be run at all.
    #[error("cannot run {}: {source}. Check that it is there and may be executed by the user it runs as", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// A program of PostgreSQL ran and reported a failure.
    #[error("{program} failed ({status}); it said:\n{output}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: String,
        /// What it wrote.
        output: String,
    },

    /// The server did not come to accept connections.
    #[error("the PostgreSQL server on port {port} did not start: {reason}. The end of its log:\n{log}")]
    NotReady {
        /// The port it was to listen on.
        port: u16,
        /// What was seen.
        reason: String,
        /// The last lines of the server's log.
        log: String,
    },

    /// The server or some of its processes did not end in time.
    #[error(
        "the PostgreSQL server (process {pid}) did not end within {seconds} s of being asked to. Is the \
         disk stuck, or a process in uninterruptible sleep? The end of its log:\n{log}"
    )]
    NotEnded {
        /// The process that is still there.
        pid: u32,
        /// How long it was waited for.
        seconds: u64,
        /// The last lines of the server's log.
        log: String,
    },

    /// No free loopback port could be had.
    #[error("no free port on 127.0.0.1: {0}. Does this machine have a loopback interface?")]
    NoPort(io::Error),

    /// A setting that the builder cannot accept.
    #[error("setting `{name}` cannot be given: {reason}")]
    Setting {
        /// The setting's name.
        name: String,
        /// Why not, and what to do instead.
        reason: &'static str,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// For `map_err` on file operations.
    pub(crate) fn files(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Files { action, path, source }
    }

    /// For `map_err` on starting a program.
    pub(crate) fn run(program: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let program = program.into();
        move |source| Self::Run { program, source }
    }
}
