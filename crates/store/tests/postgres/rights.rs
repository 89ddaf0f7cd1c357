//! Functions that run with the rights of the schema's owner never run code of their callers.

use windlass_store::{Database, Maintenance, WriteAccess, postgres::Postgres};

use super::{cluster, named, sql};

/// Opens a store in a schema of this name, and connects as a role with the rights that the documentation grants.
async fn application(schema: &str) -> (Postgres, tokio_postgres::Client) {
    let store = Postgres::open(named(schema)).await.expect("open");
    let role = format!("{schema}_app");
    sql(&format!(
        "create role {role} login; grant usage on schema {schema} to {role};
         grant execute on all functions in schema {schema} to {role}"
    ));
    let url = format!("postgres://{role}@127.0.0.1:{}/windlass", cluster().port());
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("connected");
    tokio::spawn(connection);
    (store, client)
}

/// `submit` does not write to temporary tables that have the names of the store's tables, and triggers.
#[tokio::test]
async fn submit_runs_no_code_of_its_caller() {
    let (store, client) = application("rights").await;
    client
        .batch_execute(
            "create function pg_temp.attack() returns trigger language plpgsql as
             $$ begin perform set_config('attack.ran_as', current_user::text, false); return new; end $$",
        )
        .await
        .expect("created");
    let tables =
        "select c.relname, string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod), ', ')
         from pg_class c join pg_attribute a on a.attrelid = c.oid
         where c.relnamespace = 'rights'::regnamespace and relkind = 'r' and attnum > 0 and not attisdropped
         group by c.relname";
    for row in client.query(tables, &[]).await.expect("read") {
        let (table, columns): (String, String) = (row.get(0), row.get(1));
        let decoy = format!(
            "create temp table {table} ({columns});
             create trigger attack before insert on pg_temp.{table} for each row execute function pg_temp.attack()"
        );
        client.batch_execute(&decoy).await.expect("created");
    }
    client.query_one("select rights.submit('noop')", &[]).await.expect("submitted");
    let row = client.query_one("select current_setting('attack.ran_as', true)", &[]).await.expect("read");
    assert_eq!(row.get::<_, Option<String>>(0), None, "the caller's trigger ran as this role");
    assert_eq!(store.fire_timers(None, 100).await.expect("timers").admitted, 1, "the job is in the store");
}

#[tokio::test]
async fn functions_of_the_owner_search_temporary_schemas_last() {
    drop(application("owned").await);
    let functions = |also: &str| {
        sql(&format!(
            "select count(*) from pg_proc p where pronamespace = 'owned'::regnamespace and prosecdef {also}"
        ))
    };
    assert_ne!(functions(""), "0");
    let path = "and not 'search_path=owned, pg_temp' = any (coalesce(proconfig, '{}'))";
    assert_eq!(functions(path), "0", "functions with another search path");
}

/// A role may write to a schema only if it may insert into, update and delete from every table.
#[tokio::test]
async fn a_role_that_may_only_insert_may_not_write() {
    drop(application("partial").await);
    let url = format!("postgres://partial_app@127.0.0.1:{}/windlass?schema=partial", cluster().port());
    let write = async || match windlass_store::database(&url).await.expect("read") {
        Database::Postgres(health) => health.write,
        other => panic!("{other:?}"),
    };
    sql("grant insert, select on all tables in schema partial to partial_app");
    assert_eq!(write().await, WriteAccess::Denied);
    sql("grant update, delete on all tables in schema partial to partial_app");
    assert_eq!(write().await, WriteAccess::Allowed);
}
