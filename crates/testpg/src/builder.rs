//! What a cluster is made with.
//!
//! Settings are checked when the cluster is started, before anything is made. Those that this crate
//! depends on to find, reach and end the server cannot be given by a caller.

use std::path::{Path, PathBuf};

use crate::cluster::Cluster;
use crate::error::Error;

/// Settings of every cluster: durable, and big enough that a benchmark on a small machine measures the
/// work and not the checkpoints. A caller's settings come later in the file and so win.
const DEFAULTS: [(&str, &str); 11] = [
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "on"),
    ("shared_buffers", "512MB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "15min"),
    ("max_connections", "200"),
    ("jit", "off"),
    ("autovacuum", "on"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
];

/// Settings by which this crate finds, reaches and ends the server.
const RESERVED: [&str; 12] = [
    "cluster_name",
    "config_file",
    "data_directory",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "listen_addresses",
    "log_destination",
    "logging_collector",
    "port",
    "unix_socket_directories",
    "update_process_title",
];

/// Says how a [`Cluster`] is to be made; from [`Cluster::builder`].
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Builder {
    settings: Vec<(String, String)>,
    preload: Vec<String>,
    parent: Option<PathBuf>,
}

impl Builder {
    /// Adds a setting of `postgresql.conf`; the last of the same name wins, also over this crate's own.
    ///
    /// Names that cannot be accepted (the port, for one) make [`Builder::start`] fail.
    pub fn setting(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.settings.push((name.into(), value.to_string()));
        self
    }

    /// Loads a library at the server's start, such as `pg_stat_statements`. `create extension` is left to
    /// the caller, as it is done per database.
    pub fn preload(mut self, library: impl Into<String>) -> Self {
        self.preload.push(library.into());
        self
    }

    /// Makes the cluster's folder in this folder instead of the system's temporary one.
    ///
    /// A benchmark of durable work needs a real disk under it; where the temporary folder is in memory,
    /// name another one here.
    pub fn parent(mut self, folder: impl Into<PathBuf>) -> Self {
        self.parent = Some(folder.into());
        self
    }

    /// Makes the cluster, starts its server and waits until that accepts connections.
    ///
    /// # Errors
    ///
    /// When PostgreSQL is not installed, a setting is wrong, the folder cannot be made, or the server does
    /// not come up; the error's text says what to do.
    pub fn start(self) -> Result<Cluster, Error> {
        let settings = self.checked()?;
        Cluster::make(self.parent.as_deref(), &settings)
    }

    /// All settings, in the order in which they are written.
    fn checked(&self) -> Result<Vec<(String, String)>, Error> {
        let refuse = |name: &str, reason| Err(Error::Setting { name: name.to_owned(), reason });
        for (name, value) in &self.settings {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
            if name.is_empty() || !name.chars().all(plain) {
                return refuse(name, "a name has letters, digits, `_` and `.` only");
            }
            if value.contains(['\n', '\r', '\0']) {
                return refuse(name, "its value has more than one line");
            }
            let lower = name.to_ascii_lowercase();
            if lower == "shared_preload_libraries" {
                return refuse(name, "use `Builder::preload`, once per library");
            }
            if RESERVED.contains(&lower.as_str()) {
                return refuse(name, "the cluster itself sets it to find and end its server; leave it out");
            }
        }
        let own = DEFAULTS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut settings: Vec<_> = own.chain(self.settings.iter().cloned()).collect();
        if !self.preload.is_empty() {
            settings.push(("shared_preload_libraries".to_owned(), self.preload.join(",")));
        }
        Ok(settings)
    }
}

/// The text for `postgresql.conf`: the caller's settings, then those that nobody may change.
pub(crate) fn configuration(settings: &[(String, String)], cluster_name: &str) -> String {
    let fixed =
        [("cluster_name", cluster_name), ("listen_addresses", "127.0.0.1"), ("unix_socket_directories", "")];
    let given = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let lines = given.chain(fixed).map(|(name, value)| {
        let value = value.replace('\\', "\\\\").replace('\'', "''");
        format!("{name} = '{value}'\n")
    });
    lines.collect()
}

/// The name by which a cluster's processes are known: that of its folder, which is unique.
pub(crate) fn cluster_name(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_setting_comes_after_the_default() {
        let settings = Builder::default().setting("jit", "on").preload("a").preload("b").checked().unwrap();
        let text = configuration(&settings, "wl");
        assert!(text.find("jit = 'off'").unwrap() < text.find("jit = 'on'").unwrap(), "{text}");
        assert!(text.contains("shared_preload_libraries = 'a,b'"), "{text}");
    }

    #[test]
    fn values_are_quoted() {
        let settings = vec![("a.b".to_owned(), r"it's a \ path".to_owned())];
        assert!(configuration(&settings, "wl").contains(r"a.b = 'it''s a \\ path'"));
    }

    #[test]
    fn what_the_crate_depends_on_cannot_be_set() {
        for (name, value) in [
            ("Port", "1"),
            ("a b", "1"),
            ("", "1"),
            ("work_mem", "1\nport=2"),
            ("shared_preload_libraries", "x"),
        ] {
            let result = Builder::default().setting(name, value).checked();
            assert!(matches!(result, Err(Error::Setting { .. })), "{name}");
        }
    }
}
