//! Finds the programs of an installed PostgreSQL.
//!
//! What is found is always one folder that holds all programs needed, so that a server and its tools are
//! of one version. Searched in order: `WINDLASS_PG_BIN`, PATH (through symbolic links), `pg_config
//! --bindir`, then the newest version in the folders where packages put them.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// The programs this crate runs.
const NEEDED: [&str; 4] = ["postgres", "initdb", "pg_isready", "psql"];

/// Where packages put PostgreSQL: a folder, and what the name of a version's folder in it starts with; the
/// programs are in `bin` of that.
const USUAL: [(&str, &str); 4] = [
    ("/usr/lib/postgresql", ""),
    ("/usr", "pgsql-"),
    ("/opt/homebrew/opt", "postgresql"),
    ("/usr/local/opt", "postgresql"),
];

/// The folder of PostgreSQL's programs.
#[derive(Debug, Clone)]
pub(crate) struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// Searches the environment and the usual places.
    pub(crate) fn find() -> Result<Self, Error> {
        if let Some(folder) = env::var_os("WINDLASS_PG_BIN").filter(|value| !value.is_empty()) {
            return Self::named(PathBuf::from(folder));
        }
        let path = env::var_os("PATH").unwrap_or_default();
        // Not by chaining eagerly: pg_config is only run when PATH has no server.
        if let Some(folder) = on_path(&path) {
            return Ok(Self { folder });
        }
        if let Some(folder) = from_pg_config().filter(|folder| missing(folder).is_empty()) {
            return Ok(Self { folder });
        }
        if let Some(folder) = newest(USUAL.iter().flat_map(|(root, prefix)| versions(root, prefix))) {
            return Ok(Self { folder });
        }
        let usual = USUAL.iter().map(|(root, prefix)| format!(", {root}/{prefix}*/bin")).collect::<String>();
        let searched = format!("PATH ({}), pg_config --bindir{usual}", path.display());
        Err(Error::NotInstalled { needed: NEEDED.join(", "), searched })
    }

    /// The folder that a person has named; must be complete.
    fn named(folder: PathBuf) -> Result<Self, Error> {
        let missing = missing(&folder);
        if !missing.is_empty() {
            return Err(Error::BadBinFolder { folder, missing: missing.join(", ") });
        }
        // Commands run with another current folder, so a relative path must be made whole here.
        let folder = folder.canonicalize().map_err(Error::files("find", &folder))?;
        Ok(Self { folder })
    }

    /// The full path of one of the programs.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The needed programs that a folder lacks.
fn missing(folder: &Path) -> Vec<&'static str> {
    NEEDED.into_iter().filter(|name| !folder.join(name).is_file()).collect()
}

/// The first complete folder on PATH, or behind a link to `postgres` on PATH.
fn on_path(path: &OsStr) -> Option<PathBuf> {
    env::split_paths(path).filter(|folder| folder.is_absolute()).find_map(|folder| {
        let real = folder.join("postgres").canonicalize().ok()?;
        let home = real.parent()?.to_path_buf();
        [home, folder].into_iter().find(|folder| missing(folder).is_empty())
    })
}

/// What `pg_config --bindir` says, if there is a pg_config.
fn from_pg_config() -> Option<PathBuf> {
    let output =
        Command::new("pg_config").arg("--bindir").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}

/// The program folders of all versions in a package folder, each with its version.
fn versions(root: &str, prefix: &str) -> Vec<(Vec<u32>, PathBuf)> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let found = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let rest = name.to_str()?.strip_prefix(prefix)?;
        Some((version(rest), entry.path().join("bin")))
    });
    found.collect()
}

/// The numbers in a folder's name: `15` is [15], `@9.6` is [9, 6], an unversioned name is empty.
fn version(text: &str) -> Vec<u32> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

/// The complete folder of the highest version.
fn newest(found: impl Iterator<Item = (Vec<u32>, PathBuf)>) -> Option<PathBuf> {
    found.filter(|(_, folder)| missing(folder).is_empty()).max().map(|(_, folder)| folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn installation(at: &Path) -> PathBuf {
        let folder = at.join("bin");
        fs::create_dir_all(&folder).unwrap();
        for name in NEEDED {
            fs::write(folder.join(name), "").unwrap();
        }
        folder.canonicalize().unwrap()
    }

    #[test]
    fn a_link_on_the_path_leads_to_the_installation() {
        let temp = tempfile::tempdir().unwrap();
        let real = installation(&temp.path().join("15"));
        let links = temp.path().join("links");
        fs::create_dir(&links).unwrap();
        assert_eq!(on_path(links.as_os_str()), None);
        symlink(real.join("postgres"), links.join("postgres")).unwrap();
        assert_eq!(on_path(links.as_os_str()), Some(real));
    }

    #[test]
    fn the_newest_complete_version_wins() {
        let temp = tempfile::tempdir().unwrap();
        installation(&temp.path().join("9.6"));
        let fifteen = installation(&temp.path().join("15"));
        fs::create_dir_all(temp.path().join("16/bin")).unwrap();
        let found = versions(temp.path().to_str().unwrap(), "");
        assert_eq!(newest(found.into_iter()).unwrap().canonicalize().unwrap(), fifteen);
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(version("@9.6") < version("@15"));
        assert!(version("") < version("@15"));
    }

    #[test]
    fn an_incomplete_named_folder_is_refused_with_what_is_missing() {
        let temp = tempfile::tempdir().unwrap();
        let folder = installation(temp.path());
        fs::remove_file(folder.join("psql")).unwrap();
        let error = Binaries::named(folder).unwrap_err().to_string();
        assert!(error.contains("has no psql"), "{error}");
    }
}
