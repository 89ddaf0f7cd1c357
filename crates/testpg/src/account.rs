//! As whom PostgreSQL's programs run.
//!
//! PostgreSQL refuses to run as root. When this process is root, every program of PostgreSQL runs as
//! `postgres` or else `nobody`; otherwise as the user that this process already is. Every command made
//! here has a clean environment as far as PostgreSQL is concerned, so that a developer's PGHOST, PGDATA
//! or locale changes nothing.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// An unprivileged user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct User {
    name: String,
    uid: u32,
    gid: u32,
}

/// As whom programs are run: another user, or nobody else than this process's own.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    other: Option<User>,
}

impl Account {
    /// Finds out whether this process is root and, if so, who is to run the server.
    pub(crate) fn find() -> Result<Self, Error> {
        if !is_root() {
            return Ok(Self { other: None });
        }
        let passwd = fs::read_to_string("/etc/passwd").map_err(Error::files("read", "/etc/passwd"))?;
        let other = ["postgres", "nobody"].iter().find_map(|name| user_in(&passwd, name));
        if other.is_none() {
            return Err(Error::NoAccount);
        }
        Ok(Self { other })
    }

    /// Gives a file or folder to the account.
    pub(crate) fn own(&self, path: &Path) -> Result<(), Error> {
        match &self.other {
            None => Ok(()),
            Some(user) => {
                chown(path, Some(user.uid), Some(user.gid)).map_err(Error::files("change the owner of", path))
            }
        }
    }

    /// Fails unless the account can get into this folder and all those above it.
    pub(crate) fn check_reach(&self, folder: &Path) -> Result<(), Error> {
        let full = folder.canonicalize().map_err(Error::files("find", folder))?;
        let Some(user) = &self.other else { return Ok(()) };
        for step in full.ancestors() {
            let meta = fs::metadata(step).map_err(Error::files("look at", step))?;
            let bit = match (meta.uid() == user.uid, meta.gid() == user.gid) {
                (true, _) => 0o100,
                (false, true) => 0o010,
                (false, false) => 0o001,
            };
            if meta.mode() & bit == 0 {
                return Err(Error::Unreachable { user: user.name.clone(), folder: step.to_path_buf() });
            }
        }
        Ok(())
    }

    /// The folder for temporary files: the system's, or a usual one if the account cannot reach that.
    pub(crate) fn temp_parent(&self) -> Result<PathBuf, Error> {
        let first = std::env::temp_dir();
        let Err(error) = self.check_reach(&first) else { return Ok(first) };
        ["/tmp", "/var/tmp"]
            .into_iter()
            .map(PathBuf::from)
            .find(|usual| self.check_reach(usual).is_ok())
            .ok_or(error)
    }

    /// A command that runs as the account, in `folder`, reading nothing and blind to PG* variables.
    ///
    /// It gets a process group of its own: a Ctrl-C or a test runner's group signal for the owner must not
    /// reach it before the owner (or the watcher) has decided what to do.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>, folder: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C").env("TZ", "UTC").env("HOME", folder);
        command.current_dir(folder).stdin(Stdio::null()).process_group(0);
        if let Some(user) = &self.other {
            command.uid(user.uid).gid(user.gid);
        }
        command
    }
}

/// Whether the effective user is root, from /proc or else from `id`.
fn is_root() -> bool {
    if let Ok(status) = fs::read_to_string("/proc/self/status") {
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        if let Some(effective) = uids.and_then(|uids| uids.split_whitespace().nth(1)) {
            return effective == "0";
        }
    }
    match Command::new("id").arg("-u").stdin(Stdio::null()).output() {
        Ok(output) => output.stdout.trim_ascii() == b"0",
        Err(_) => false,
    }
}

/// Looks a user up in the text of /etc/passwd; root by another name does not count.
fn user_in(passwd: &str, wanted: &str) -> Option<User> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| *name == wanted)?;
        let uid = fields.nth(1)?.parse().ok().filter(|uid| *uid != 0)?;
        let gid = fields.next()?.parse().ok()?;
        Some(User { name: name.to_owned(), uid, gid })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
                          toor:x:0:0::/root:/bin/sh\n\
                          postgres2:x:7:8::/:/bin/sh\n\
                          postgres:x:101:104:PostgreSQL,,,:/var/lib/postgresql:/bin/bash\n";

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let user = user_in(PASSWD, "postgres").unwrap();
        assert_eq!((user.uid, user.gid), (101, 104));
        assert_eq!(user_in(PASSWD, "nobody"), None);
    }

    #[test]
    fn no_alias_of_root_is_taken() {
        assert_eq!(user_in(PASSWD, "toor"), None);
    }

    #[test]
    fn a_private_folder_is_out_of_reach_of_another_user() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let stranger = User { name: "stranger".into(), uid: 4_000_000, gid: 4_000_000 };
        let account = Account { other: Some(stranger) };
        assert!(matches!(account.check_reach(folder.path()), Err(Error::Unreachable { .. })));
        assert!(Account { other: None }.check_reach(folder.path()).is_ok());
    }
}
