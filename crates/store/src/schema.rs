//! Versions of the schema: library-owned migrations, up and down, and which binaries may use which.

use serde::Serialize;

use crate::Error;

/// One step of a schema, forward and back.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// The schema's version after it.
    pub version: i32,
    /// What it brings.
    pub name: &'static str,
    /// Statements that take the schema there.
    pub up: &'static str,
    /// Statements that take it back.
    pub down: &'static str,
}

/// The schema version that this binary was written for.
pub(crate) const LATEST: i32 = 6;

/// The oldest binary (by the schema version it was written for) that may use the schema as this one leaves
/// it. A migration that old binaries cannot live with raises it to its own version.
pub(crate) const OLDEST: i32 = 6;

/// Where a schema stands, as it says itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SchemaState {
    /// Its version; 0 before the first migration.
    pub version: i32,
    /// The oldest binary that may use it.
    pub oldest: i32,
    /// What this binary was written for.
    pub latest: i32,
}

impl SchemaState {
    /// As this binary would leave it.
    pub const CURRENT: SchemaState = SchemaState { version: LATEST, oldest: OLDEST, latest: LATEST };

    /// Whether this binary may use the schema as it is.
    pub fn check(&self) -> Result<(), Error> {
        if self.version < self.latest {
            return Err(Error::Schema(format!(
                "the schema has version {} and this binary needs {}; run `windlass migrate` first",
                self.version, self.latest
            )));
        }
        if self.latest < self.oldest {
            return Err(Error::Schema(format!(
                "the schema has version {} and no longer serves binaries older than version {}, and this binary \
                 has version {}; use a newer one",
                self.version, self.oldest, self.latest
            )));
        }
        Ok(())
    }

    /// The target of a migration, checked: `None` is the newest this binary knows.
    pub fn target(&self, target: Option<i32>) -> Result<i32, Error> {
        let target = target.unwrap_or(self.latest);
        if !(0..=self.latest).contains(&target) {
            return Err(Error::Schema(format!(
                "there is no schema version {target}; this binary knows 0 (nothing) to {}",
                self.latest
            )));
        }
        if self.version > self.latest {
            return Err(Error::Schema(format!(
                "the schema has version {}, newer than the {} this binary knows; migrate it with a newer binary",
                self.version, self.latest
            )));
        }
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_schema_serves_old_binaries_until_it_says_otherwise() {
        let ok = SchemaState { version: 3, oldest: 1, latest: 1 };
        assert!(ok.check().is_ok());
        let too_new = SchemaState { version: 3, oldest: 2, latest: 1 };
        assert!(too_new.check().unwrap_err().to_string().contains("use a newer one"));
        let old = SchemaState { version: 0, oldest: 0, latest: 1 };
        assert!(old.check().unwrap_err().to_string().contains("windlass migrate"));
        assert!(too_new.target(None).is_err());
        assert!(old.target(Some(7)).is_err());
    }
}
