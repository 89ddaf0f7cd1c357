//! Functions that run with the rights of the schema's owner run nobody else's code.

use windlass_store::{
    Maintenance,
    postgres::{Options, Postgres},
};

use super::cluster;

fn sql(statements: &str) -> String {
    cluster().sql("windlass", statements).expect("sql")
}

/// A role that may do what the documentation has it granted, connected, and the store whose schema has a name.
async fn application(schema: &str) -> (Postgres, tokio_postgres::Client) {
    let options = Options::parse(&cluster().url()).and_then(|options| options.schema(schema)).expect("valid");
    let store = Postgres::open(options).await.expect("open");
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

/// Temporary tables that are named like those of the store, with triggers, are not what `submit` writes to.
#[tokio::test]
async fn submit_runs_no_code_of_its_caller() {
    let (store, client) = application("rights").await;
    client
        .batch_execute(
            "create function pg_temp.attack() returns trigger language plpgsql as
             $$ begin perform set_config('attack.ran_as', current_user::text, false); return new; end $$",
        )
        .await
        .expect("made");
    let tables =
        "select c.relname, string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod), ', ')
         from pg_class c join pg_attribute a on a.attrelid = c.oid
         where c.relnamespace = 'rights'::regnamespace and relkind = 'r' and attnum > 0 and not attisdropped
         group by c.relname";
    for row in client.query(tables, &[]).await.expect("read") {
        let (table, columns): (String, String) = (row.get(0), row.get(1));
        let twin = format!(
            "create temp table {table} ({columns});
             create trigger attack before insert on pg_temp.{table} for each row execute function pg_temp.attack()"
        );
        client.batch_execute(&twin).await.expect("made");
    }
    client.query_one("select rights.submit('noop')", &[]).await.expect("submitted");
    let row = client.query_one("select current_setting('attack.ran_as', true)", &[]).await.expect("read");
    assert_eq!(row.get::<_, Option<String>>(0), None, "the caller's trigger ran as this role");
    assert_eq!(store.fire_timers(None, 100).await.expect("due").admitted, 1, "the job is where it belongs");
}

#[tokio::test]
async fn all_functions_of_the_owner_look_into_temporary_schemas_last() {
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
