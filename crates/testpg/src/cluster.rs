//! The cluster: a folder, a port and at most one running server.
//!
//! The fields are arranged so that at any point of a failed start or of a drop the server ends first, then
//! the folder goes, then the watcher; the watcher is there before anything that it must clean up.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::account::Account;
use crate::binaries::Binaries;
use crate::builder::{Builder, cluster_name, configuration};
use crate::error::Error;
use crate::leftovers::Leftovers;
use crate::port;
use crate::processes::Mark;
use crate::server::{Failure, Place, check, crash, end};
use crate::watcher::Watcher;

/// How long a new server may take to accept connections.
const START: Duration = Duration::from_secs(60);
/// How long a server may take after a kill: it first replays all that was written since a checkpoint.
const RECOVERY: Duration = Duration::from_secs(600);
/// How long remains of a killed server, or a stranger on its port, are waited out.
const BUSY: Duration = Duration::from_secs(60);
/// How long an orderly stop may take: it writes all changed pages.
const STOP: Duration = Duration::from_secs(120);
/// How long an immediate shutdown may take before all is killed; the server itself kills after 5 s.
const QUIT: Duration = Duration::from_secs(8);
/// How many ports are tried for a new server.
const PORTS: usize = 10;

/// A private PostgreSQL server with its data; ended and removed when dropped.
///
/// The user is `windlass`, a superuser; connections from 127.0.0.1 need no password and no others are
/// accepted.
#[derive(Debug)]
pub struct Cluster {
    port: u16,
    place: Place,
    /// The postmaster; none after a kill or stop.
    child: Option<Child>,
    /// What the last kill left in shared memory.
    leftovers: Leftovers,
    /// Only taken out by drop.
    folder: Option<TempDir>,
    watcher: Watcher,
}

impl Cluster {
    /// Makes and starts a cluster with the default settings.
    ///
    /// # Errors
    ///
    /// As [`Builder::start`].
    pub fn start() -> Result<Self, Error> {
        Self::builder().start()
    }

    /// Says how a cluster is to be made before it is started.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Makes the folder, the cluster in it, the server and the database `windlass`.
    pub(crate) fn make(parent: Option<&Path>, settings: &[(String, String)]) -> Result<Self, Error> {
        let binaries = Binaries::find()?;
        let account = Account::find()?;
        let parent = match parent {
            Some(parent) => account.check_reach(parent).map(|()| parent.to_path_buf())?,
            None => account.temp_parent()?,
        };
        let parent = parent.canonicalize().map_err(Error::files("find", &parent))?;
        let private = fs::Permissions::from_mode(0o700);
        let mut temp = tempfile::Builder::new();
        let temp = temp.prefix("windlass-pg-").rand_bytes(12).permissions(private).tempdir_in(&parent);
        let temp = temp.map_err(Error::files("make a folder in", &parent))?;
        let folder = temp.path().to_path_buf();
        account.own(&folder)?;
        let watcher = Watcher::start(&folder)?;
        let name = cluster_name(&folder);
        let mark = Mark::new(&folder.join("data"), &name);
        let place = Place { binaries, account, folder, mark };
        let (child, leftovers) = (None, Leftovers::default());
        let mut cluster = Self { port: 0, place, child, leftovers, folder: Some(temp), watcher };

        cluster.place.initialize(&mut cluster.watcher)?;
        cluster.configure(&configuration(settings, &name))?;
        cluster.first_start()?;
        cluster.create_database("windlass")?;
        Ok(cluster)
    }

    /// The URL of the database `windlass`, as `postgres://windlass@127.0.0.1:PORT/windlass`.
    pub fn url(&self) -> String {
        self.url_for("windlass")
    }

    /// The URL of a database of this cluster, which need not exist yet.
    pub fn url_for(&self, database: &str) -> String {
        format!("postgres://windlass@127.0.0.1:{}/{}", self.port, percent_encoded(database))
    }

    /// The loopback port; the same for all of the cluster's life.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder with the server's data.
    pub fn data_dir(&self) -> PathBuf {
        self.place.data()
    }

    /// The folder with PostgreSQL's programs, such as `psql` or `pgbench`.
    pub fn bin_dir(&self) -> &Path {
        self.place.binaries.folder()
    }

    /// The postmaster's process number; none after [`Cluster::kill`] or [`Cluster::stop`].
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The last lines of the server's log.
    pub fn log(&self) -> String {
        self.place.log_end()
    }

    /// Creates a database and returns its URL.
    ///
    /// # Errors
    ///
    /// When there is one of that name, or the server does not run.
    pub fn create_database(&self, name: &str) -> Result<String, Error> {
        let statement = format!("create database \"{}\" owner windlass", name.replace('"', "\"\""));
        self.sql("postgres", &statement)?;
        Ok(self.url_for(name))
    }

    /// Runs SQL in a database through `psql` and returns what it prints: a line per row, columns separated
    /// by `|`. All statements given at once are one transaction.
    ///
    /// # Errors
    ///
    /// When a statement fails or the server cannot be reached, with what `psql` said.
    pub fn sql(&self, database: &str, statements: &str) -> Result<String, Error> {
        let mut command = self.place.command("psql");
        command.args(["-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1"]);
        command.args(["-h", "127.0.0.1", "-U", "windlass", "-p", &self.port.to_string(), "-c", statements]);
        // By the environment, as psql would take a name with `=` in an argument for a connection string.
        command.env("PGDATABASE", database);
        let output = command.output().map_err(Error::run(command.get_program()))?;
        check("psql", &output)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Kills the server and all its processes at once, as a crash of the machine would. What was committed
    /// is in the files; [`Cluster::restart`] brings it back. Nothing happens if no server runs.
    ///
    /// # Errors
    ///
    /// When some process does not die.
    pub fn kill(&mut self) -> Result<(), Error> {
        let Some(child) = &mut self.child else { return Ok(()) };
        let mut pids = self.place.mark.living();
        pids.push(child.id());
        self.leftovers = Leftovers::of(&self.place.data(), &pids);
        crash(child, &self.place)?;
        self.child = None;
        self.watcher.forget();
        Ok(())
    }

    /// Stops the server in an orderly way, ending all sessions (a "fast" shutdown). Nothing happens if no
    /// server runs.
    ///
    /// # Errors
    ///
    /// When the server does not end in time; it is then still running.
    pub fn stop(&mut self) -> Result<(), Error> {
        let Some(child) = &mut self.child else { return Ok(()) };
        if !end(child, "INT", STOP) {
            let (pid, seconds) = (child.id(), STOP.as_secs());
            return Err(Error::NotEnded { pid, seconds, log: self.place.log_end() });
        }
        // Does nothing unless something else had killed the postmaster and orphaned the others.
        crash(child, &self.place)?;
        self.child = None;
        self.watcher.forget();
        Ok(())
    }

    /// Starts the server again on the same port and data and waits until it accepts connections. One that
    /// still runs is stopped first.
    ///
    /// # Errors
    ///
    /// When the server does not come up, for one because something else has taken the port meanwhile.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.stop()?;
        // This process has seen the postmaster end, so its lock file says nothing any more; its process
        // number may belong to another process by now, which would keep the new server from starting.
        let lock = self.place.data().join("postmaster.pid");
        if lock.exists() {
            fs::remove_file(&lock).map_err(Error::files("remove", &lock))?;
        }
        let deadline = Instant::now() + BUSY;
        loop {
            match self.place.launch(self.port, RECOVERY, &mut self.watcher) {
                Ok(child) => {
                    self.child = Some(child);
                    self.leftovers = Leftovers::default();
                    return Ok(());
                }
                Err(Failure::Other(error)) => return Err(error),
                Err(failure) if Instant::now() >= deadline => return Err(failure.into_error()),
                Err(_) => sleep(Duration::from_millis(100)),
            }
        }
    }

    fn configure(&self, text: &str) -> Result<(), Error> {
        let path = self.place.data().join("postgresql.conf");
        let mut file = OpenOptions::new().append(true).open(&path).map_err(Error::files("open", &path))?;
        file.write_all(text.as_bytes()).map_err(Error::files("write", &path))
    }

    /// Starts the server on some free port; another process may take each one just before the server does.
    fn first_start(&mut self) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            self.port = port::free()?;
            match self.place.launch(self.port, START, &mut self.watcher) {
                Ok(child) => {
                    self.child = Some(child);
                    return Ok(());
                }
                Err(Failure::PortTaken(_)) if tries < PORTS => {}
                Err(failure) => return Err(failure.into_error()),
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Orphans live on for a while if something else killed the postmaster.
            if !end(&mut child, "QUIT", QUIT) || !self.place.mark.living().is_empty() {
                let _ = crash(&mut child, &self.place);
            }
        }
        std::mem::take(&mut self.leftovers).remove();
        self.watcher.forget();
        if let Some(folder) = self.folder.take() {
            // What cannot be removed at once, the watcher tries again when its pipe closes.
            let _ = folder.close();
        }
    }
}

/// A database's name as a part of a URL.
fn percent_encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_for_urls() {
        assert_eq!(percent_encoded("wind_lass-1"), "wind_lass-1");
        assert_eq!(percent_encoded("a b/ä"), "a%20b%2F%C3%A4");
    }
}
