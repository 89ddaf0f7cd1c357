//! Versions of the schema: the migrations of this build, up and down, and which binaries may use which schema.

use serde::Serialize;

use crate::Error;

/// One change of the schema, forward and back.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// The schema's version after it.
    pub version: i32,
    /// The oldest binary, by the schema version that it was built for, that may use the schema after it.
    pub oldest: i32,
    /// What it adds.
    pub name: &'static str,
    /// Statements that apply it.
    pub up: &'static str,
    /// Statements that revert it.
    pub down: &'static str,
}

/// The first schema version. Databases of earlier versions were made by builds before the first release.
pub(crate) const BASELINE: i32 = 7;

/// The schema version that this binary was built for.
pub(crate) const LATEST: i32 = 7;

/// See [`Migration::oldest`], of the last migration.
pub(crate) const OLDEST: i32 = 7;

/// The version of a schema, as the database says itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SchemaState {
    /// Its version; 0 before the first migration.
    pub version: i32,
    /// The oldest binary that may use it.
    pub oldest: i32,
    /// The version that this binary was built for.
    pub latest: i32,
}

impl SchemaState {
    /// The schema after all migrations of this binary.
    pub const CURRENT: SchemaState = SchemaState { version: LATEST, oldest: OLDEST, latest: LATEST };

    /// A database without a schema.
    pub(crate) fn none(migrations: &[Migration]) -> SchemaState {
        SchemaState { version: 0, oldest: 0, latest: latest(migrations) }
    }

    /// Whether this binary may use the schema.
    pub fn check(&self) -> Result<(), Error> {
        self.check_supported()?;
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

    fn check_supported(&self) -> Result<(), Error> {
        if (1..BASELINE).contains(&self.version) {
            return Err(Error::Schema(format!(
                "the schema has version {}, which a build before the first release made; no migration leads from there to \
                 version {}. Finish its jobs with that build, or use an empty database",
                self.version, self.latest
            )));
        }
        Ok(())
    }

    /// The target of a migration, checked: `None` is the newest version that this binary knows.
    pub fn target(&self, target: Option<i32>) -> Result<i32, Error> {
        self.check_supported()?;
        let target = target.unwrap_or(self.latest);
        if target != 0 && !(BASELINE..=self.latest).contains(&target) {
            return Err(Error::Schema(format!(
                "there is no schema version {target}; this binary knows 0 (nothing) and {BASELINE} to {}",
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

/// The newest version that migrations lead to.
pub(crate) fn latest(migrations: &[Migration]) -> i32 {
    migrations.last().map_or(0, |migration| migration.version)
}

/// A migration to be applied or reverted, and the schema's version and oldest binary afterwards.
pub(crate) struct MigrationStep<'a> {
    pub(crate) migration: &'a Migration,
    pub(crate) is_up: bool,
    pub(crate) version: i32,
    pub(crate) oldest: i32,
}

impl MigrationStep<'_> {
    pub(crate) fn sql(&self) -> &'static str {
        if self.is_up { self.migration.up } else { self.migration.down }
    }

    pub(crate) fn log(&self) {
        let (version, name) = (self.migration.version, self.migration.name);
        let direction = if self.is_up { "up" } else { "down" };
        tracing::info!(version, name, direction, "migrated the schema");
    }
}

/// What takes a schema from one version to another.
pub(crate) fn steps(from: i32, to: i32, migrations: &[Migration]) -> Vec<MigrationStep<'_>> {
    let up = migrations.iter().filter(|migration| migration.version > from && migration.version <= to);
    let up = up.map(|migration| MigrationStep {
        migration,
        is_up: true,
        version: migration.version,
        oldest: migration.oldest,
    });
    let down = migrations.iter().enumerate().rev();
    let down = down.filter(|(_, migration)| migration.version <= from && migration.version > to);
    let down = down.map(|(place, migration)| {
        let before = place.checked_sub(1).map(|place| &migrations[place]);
        let (version, oldest) = before.map_or((0, 0), |before| (before.version, before.oldest));
        MigrationStep { migration, is_up: false, version, oldest }
    });
    up.chain(down).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_schema_serves_old_binaries_until_it_says_otherwise() {
        let ok = SchemaState { version: 9, oldest: 7, latest: 7 };
        assert!(ok.check().is_ok());
        let too_new = SchemaState { version: 9, oldest: 8, latest: 7 };
        assert!(too_new.check().unwrap_err().to_string().contains("use a newer one"));
        let old = SchemaState { version: 7, oldest: 7, latest: 8 };
        assert!(old.check().unwrap_err().to_string().contains("windlass migrate"));
        assert!(too_new.target(None).is_err());
        assert!(old.target(Some(9)).is_err());
        assert!(old.target(Some(3)).is_err());
        assert_eq!(old.target(Some(0)).unwrap(), 0);
    }

    #[test]
    fn a_schema_from_before_the_first_release_is_refused_and_says_so() {
        let early = SchemaState { version: 6, oldest: 6, latest: 7 };
        for error in [early.check().unwrap_err(), early.target(None).unwrap_err()] {
            assert!(error.to_string().contains("before the first release"), "{error}");
        }
    }

    #[test]
    fn steps_lead_up_in_order_and_down_in_reverse() {
        let migration = |version, oldest| Migration { version, oldest, name: "", up: "up", down: "down" };
        let all = [migration(7, 7), migration(8, 7), migration(9, 9)];
        let walk = |from, to| -> Vec<(&str, i32, i32)> {
            steps(from, to, &all).iter().map(|step| (step.sql(), step.version, step.oldest)).collect()
        };
        assert_eq!(walk(0, 9), [("up", 7, 7), ("up", 8, 7), ("up", 9, 9)]);
        assert_eq!(walk(8, 9), [("up", 9, 9)]);
        assert_eq!(walk(9, 0), [("down", 8, 7), ("down", 7, 7), ("down", 0, 0)]);
        assert!(walk(9, 9).is_empty());
    }
}
