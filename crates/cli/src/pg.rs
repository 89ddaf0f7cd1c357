//! A plain connection to a PostgreSQL store, for checks that the store's traits do not offer.

use std::time::Duration;

use anyhow::Context;
use tokio_postgres::{Client, Config, NoTls};
use windlass::store::SchemaState;

/// Connects to the database at a store's address. Returns the connection and the name of the store's schema.
pub(crate) async fn connect(url: &str) -> anyhow::Result<(Client, String)> {
    let (url, schema) = split_schema(url);
    let mut config: Config =
        url.parse().context("the PostgreSQL address is not valid; use postgres://USER@HOST/DATABASE")?;
    config.connect_timeout(config.get_connect_timeout().copied().unwrap_or(Duration::from_secs(5)));
    let (client, connection) = config.connect(NoTls).await.map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        anyhow::anyhow!("{error}{cause}; is the server running, and is the address right?")
    })?;
    tokio::spawn(async move {
        // A lost connection fails the next query.
        let _ = connection.await;
    });
    Ok((client, schema))
}

/// Reads the version of the schema. Creates nothing.
pub(crate) async fn schema_state(client: &Client, schema: &str) -> anyhow::Result<SchemaState> {
    let none = SchemaState { version: 0, oldest: 0, ..SchemaState::CURRENT };
    let exists =
        client.query_one("select to_regclass($1::text) is not null", &[&format!("{schema}.meta")]).await?;
    if !exists.get::<_, bool>(0) {
        return Ok(none);
    }
    let row = client.query_one(&format!("select version, oldest from {schema}.meta"), &[]).await?;
    Ok(SchemaState { version: row.get(0), oldest: row.get(1), ..none })
}

/// Splits the `schema` parameter, which only the store knows, from an address.
fn split_schema(url: &str) -> (String, String) {
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), "windlass".to_owned()) };
    let (own, rest): (Vec<&str>, Vec<&str>) = query.split('&').partition(|part| part.starts_with("schema="));
    let schema = own.first().map_or("windlass", |part| &part["schema=".len()..]).to_owned();
    (if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) }, schema)
}
