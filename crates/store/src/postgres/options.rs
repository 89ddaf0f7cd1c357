//! Options: how to reach a database.

use std::time::Duration;

use windlass_model::Limits;

use crate::{Error, address::take_limits};

/// How to reach a database.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) config: tokio_postgres::Config,
    pub(super) schema: String,
    pub(super) migrate: bool,
    pub(super) limits: Limits,
    pub(super) connections: usize,
    pub(super) patience: Duration,
    pub(super) connection_life: Duration,
}

impl Options {
    /// The database at `url`, for example `postgres://user@host/database?schema=windlass`. The parameter `schema` names the schema,
    /// by default `windlass`; parameters like `limit_payload` set limits.
    pub fn parse(url: &str) -> Result<Options, Error> {
        let (url, limits) = take_limits(url)?;
        let (url, schema) = take_schema(&url);
        let config = url.parse::<tokio_postgres::Config>().map_err(|e| {
            Error::Config(format!(
                "the PostgreSQL address is not valid ({e}); use postgres://USER@HOST/DATABASE"
            ))
        })?;
        let options = Options {
            config,
            schema: "windlass".to_owned(),
            migrate: true,
            limits,
            connections: 8,
            // Longer than any batch takes, and shorter than a lease.
            patience: Duration::from_secs(10),
            // Long enough that connecting costs nothing, and short enough to wait for a changed setting to take effect.
            connection_life: Duration::from_secs(30 * 60),
        };
        schema.map_or(Ok(options.clone()), |schema| options.schema(&schema))
    }

    /// The PostgreSQL schema that holds the tables.
    pub fn schema(mut self, schema: &str) -> Result<Options, Error> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if schema.is_empty() || schema.len() > 60 || !schema.chars().all(plain) || schema.starts_with("pg_") {
            return Err(Error::Config(format!(
                "{schema:?} cannot be the schema's name; use up to 60 lower-case letters, digits and underscores, \
                 not beginning with pg_"
            )));
        }
        self.schema = schema.to_owned();
        Ok(self)
    }

    /// The name of the PostgreSQL schema that holds the tables.
    pub fn schema_name(&self) -> &str {
        &self.schema
    }

    /// Whether to migrate the schema when the store is opened; by default it is.
    pub fn migrate(mut self, migrate: bool) -> Options {
        self.migrate = migrate;
        self
    }

    /// The limits of what may be submitted.
    pub fn limits(mut self, limits: Limits) -> Options {
        self.limits = limits;
        self
    }

    /// How many connections this handle may open; by default 8.
    pub fn connections(mut self, connections: usize) -> Options {
        self.connections = connections.max(1);
        self
    }

    /// How long a connection is used before it is replaced, give or take a tenth; by default 30 minutes. After that time all
    /// connections use changed settings, and the server that the address leads to now.
    pub fn connection_life(mut self, life: Duration) -> Options {
        self.connection_life = life;
        self
    }

    /// How long to wait for an answer before giving up with [`Error::Unavailable`]; by default 10 seconds.
    pub fn patience(mut self, patience: Duration) -> Options {
        self.patience = patience;
        self
    }
}

/// Removes the `schema` parameter from a URL, and returns both.
fn take_schema(url: &str) -> (String, Option<String>) {
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let (mine, rest): (Vec<&str>, Vec<&str>) = query.split('&').partition(|p| p.starts_with("schema="));
    let schema = mine.first().map(|p| p["schema=".len()..].to_owned());
    let rest = rest.join("&");
    (if rest.is_empty() { base.to_owned() } else { format!("{base}?{rest}") }, schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_read_from_the_address_and_checked() {
        let options = Options::parse("postgres://u@h/db?schema=jobs&connect_timeout=3").expect("valid");
        assert_eq!(options.schema, "jobs");
        assert_eq!(options.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert!(
            Options::parse("postgres://u@h/db?schema=Jobs").unwrap_err().to_string().contains("lower-case")
        );
        assert!(
            Options::parse("postgres://u@h:x/db").unwrap_err().to_string().contains("postgres://USER@HOST")
        );
    }
}
