//! The version of the kind of a job to be submitted.

use anyhow::bail;

use crate::program::Program;

/// A version that this program, or the server, does not serve is refused unless --any-kind is given: it is most likely a typing mistake.
#[derive(clap::Args)]
pub(crate) struct KindVersion {
    /// Which version of the kind [default: the newest that this program serves]
    #[arg(long, value_name = "N")]
    kind_version: Option<i32>,
    /// Accept a kind that this program does not serve, or an input that its code cannot decode, because other workers can
    #[arg(long)]
    pub(crate) any_kind: bool,
}

impl KindVersion {
    /// The version that was given, or the newest that the program, or the server, serves.
    pub(crate) async fn resolve(&self, program: &Program, kind: &str) -> anyhow::Result<i32> {
        if let (Some(version), true) = (self.kind_version, self.any_kind) {
            return Ok(version);
        }
        let (kinds, who) = program.known_kinds().await?;
        let served: Vec<i32> =
            kinds.iter().filter(|served| served.kind == kind).map(|served| served.version).collect();
        match (self.kind_version, served.iter().max()) {
            (Some(version), _) if served.contains(&version) => Ok(version),
            (None, Some(newest)) => Ok(*newest),
            (None, None) if self.any_kind => Ok(1),
            (Some(version), Some(newest)) => bail!(
                "{who} does not serve version {version} of {kind:?}, only versions up to {newest}; leave \
                 --kind-version out, or add --any-kind to submit it for other workers"
            ),
            _ => {
                let mut names: Vec<&str> = kinds.iter().map(|kind| kind.kind.as_str()).collect();
                names.dedup();
                bail!(
                    "{who} does not serve the kind {kind:?}, only {}; add --any-kind to submit it for other \
                     workers that serve it",
                    names.join(", ")
                )
            }
        }
    }
}
