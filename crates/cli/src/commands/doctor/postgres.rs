//! Checks a PostgreSQL database: version, durability, permission to write, long transactions.

use tokio_postgres::Client;

use super::{Findings, sqlite::bytes};
use crate::pg;

pub(super) async fn examine(findings: &mut Findings, url: &str) {
    let (client, schema) = match pg::connect(url).await {
        Ok(connected) => connected,
        Err(error) => return findings.fail("server", format!("{error:#}")),
    };
    let checked = server(findings, &client, &schema).await;
    findings.add_error("server", checked);
    let checked = durability(findings, &client).await;
    findings.add_error("durability", checked);
    let checked = write(findings, &client, &schema).await;
    findings.add_error("write", checked);
    let checked = old_transactions(findings, &client).await;
    findings.add_error("transactions", checked);
}

async fn server(findings: &mut Findings, client: &Client, schema: &str) -> anyhow::Result<()> {
    let sql = "select current_setting('server_version'), coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8 \
                 from pg_class c join pg_namespace n on n.oid = c.relnamespace \
                 where n.nspname = $1 and c.relkind in ('r', 'p')";
    let row = client.query_one(sql, &[&schema]).await?;
    let (version, used): (String, i64) = (row.get(0), row.get(1));
    findings
        .ok("server", format!("PostgreSQL {version}, {} used by schema {schema}", bytes(used.max(0) as u64)));
    Ok(())
}

async fn durability(findings: &mut Findings, client: &Client) -> anyhow::Result<()> {
    let mut good = Vec::new();
    for (name, risk) in [
        ("fsync", "a crash of the machine can lose and corrupt everything"),
        ("full_page_writes", "a crash of the machine can corrupt pages"),
        ("synchronous_commit", "a crash of the server can lose acknowledged jobs"),
    ] {
        let row = client.query_one("select current_setting($1)", &[&name]).await?;
        let value: String = row.get(0);
        if value == "off" {
            findings.fail("durability", format!("{name} is off: {risk}; turn it on"));
        } else {
            good.push(format!("{name} {value}"));
        }
    }
    if good.len() == 3 {
        findings.ok("durability", good.join(", "));
    }
    Ok(())
}

async fn write(findings: &mut Findings, client: &Client, schema: &str) -> anyhow::Result<()> {
    let sql = "select pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', current_user::text, \
                 case when to_regnamespace($1) is null then has_database_privilege(current_database(), 'create') \
                      else coalesce((select bool_and(has_table_privilege(c.oid, 'insert, update, delete')) \
                                     from pg_class c where c.relnamespace = to_regnamespace($1) and c.relkind = 'r'), true) end";
    let row = client.query_one(sql, &[&schema]).await?;
    let (standby, read_only, user, may_write): (bool, bool, String, bool) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    if standby {
        findings.fail("write", "this server is a standby; use the primary's address");
    } else if read_only {
        findings.fail(
            "write",
            "transactions are read-only here (default_transaction_read_only); use a session that may write",
        );
    } else if !may_write {
        findings
            .fail("write", format!("{user} may not write to schema {schema}; grant it, or use another user"));
    } else {
        findings.ok("write", format!("{user} may write"));
    }
    Ok(())
}

/// A long transaction keeps vacuum from removing dead rows, which slows everything down.
async fn old_transactions(findings: &mut Findings, client: &Client) -> anyhow::Result<()> {
    let sql = "select coalesce(extract(epoch from max(clock_timestamp() - xact_start)), 0)::int8 \
                 from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    let seconds: i64 = client.query_one(sql, &[]).await?.get(0);
    if seconds > 600 {
        let found = format!(
            "one has been open for {} min and keeps vacuum from removing dead rows; find it in pg_stat_activity",
            seconds / 60
        );
        findings.warn("transactions", found);
    }
    Ok(())
}
