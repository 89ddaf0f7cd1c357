//! Where the demo keeps its jobs and its files.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use windlass_testpg::Cluster;

use super::Args;

/// The store of a demo.
pub(super) struct Place {
    pub(super) url: String,
    /// Whether it was made for the demo, which may then delete what it likes.
    pub(super) is_own: bool,
    /// The server behind it, if it was started for the demo.
    _server: Option<Cluster>,
}

impl Place {
    /// The store that the arguments name, or a new one in the folder.
    pub(super) fn open(args: &Args, folder: &Path) -> anyhow::Result<Place> {
        match args.store.as_deref() {
            None | Some("sqlite") => {
                let file = folder.join("demo.db");
                if file.exists() {
                    bail!(
                        "{} exists already, from an earlier demo; remove it, or name another --dir",
                        file.display()
                    );
                }
                let url = format!("sqlite://{}", file.display());
                Ok(Place { url, is_own: true, _server: None })
            }
            Some("postgres") => {
                let server = Cluster::start().context("a private PostgreSQL server cannot be started")?;
                Ok(Place { url: server.url(), is_own: true, _server: Some(server) })
            }
            Some("memory:") => {
                bail!("memory: cannot be shared by processes; use sqlite or a postgres:// URL")
            }
            Some(url) => Ok(Place { url: url.to_owned(), is_own: false, _server: None }),
        }
    }
}

/// The folder with the demo's files.
pub(super) enum Folder {
    Given(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Folder {
    pub(super) fn open(args: &Args) -> anyhow::Result<Folder> {
        let Some(path) = &args.dir else {
            let folder = tempfile::Builder::new().prefix("windlass-demo-").tempdir();
            return Ok(Folder::Temporary(
                folder.context("a temporary folder cannot be created; name one with --dir")?,
            ));
        };
        std::fs::create_dir_all(path)
            .with_context(|| format!("the folder {} cannot be created", path.display()))?;
        Ok(Folder::Given(path.canonicalize()?))
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Folder::Given(path) => path,
            Folder::Temporary(folder) => folder.path(),
        }
    }

    pub(super) fn keep(self) -> PathBuf {
        match self {
            Folder::Given(path) => path,
            Folder::Temporary(folder) => folder.keep(),
        }
    }
}
