//! A submit in a transaction of diesel.

#![allow(missing_docs, reason = "the macro generates items without documentation")]

mod shop;

use diesel::{
    prelude::*,
    result::Error,
    sql_types::{Array, Jsonb, Text},
};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use serde_json::json;
use shop::{ORDERS, is_gone, result, start};
use uuid::Uuid;

diesel::table! {
    shop_orders (id) {
        id -> Integer,
        goods -> Text,
    }
}

/// The row of `select windlass.submit(…) as id`.
#[derive(diesel::QueryableByName)]
struct Submitted {
    #[diesel(sql_type = diesel::sql_types::Uuid)]
    id: Uuid,
}

/// Inserts an order, and submits the job that confirms it.
async fn take(connection: &mut AsyncPgConnection, order: i32, goods: &str) -> QueryResult<Uuid> {
    diesel::insert_into(shop_orders::table)
        .values((shop_orders::id.eq(order), shop_orders::goods.eq(goods)))
        .execute(connection)
        .await?;
    let submitted: Submitted =
        diesel::sql_query("select windlass.submit('confirm', $1, key => $2, tags => $3) as id")
            .bind::<Jsonb, _>(json!({ "order": order }))
            .bind::<Text, _>(format!("order-{order}"))
            .bind::<Array<Text>, _>(vec!["shop"])
            .get_result(connection)
            .await?;
    Ok(submitted.id)
}

#[tokio::test]
async fn an_order_and_its_job_are_committed_together_or_not_at_all() -> QueryResult<()> {
    let (cluster, engine) = start().await;
    let mut connection = AsyncPgConnection::establish(&cluster.url()).await.expect("connected");
    connection.batch_execute(ORDERS).await?;

    let mut never = None;
    let rolled_back = connection
        .transaction(async |connection| {
            never = Some(take(connection, 1, "a chair").await?);
            Err::<(), Error>(Error::RollbackTransaction)
        })
        .await;
    assert_eq!(rolled_back, Err(Error::RollbackTransaction));

    let id = connection.transaction(async |connection| take(connection, 2, "a lamp").await).await?;

    assert_eq!(result(&engine, id).await, "order 2 is confirmed");
    assert!(is_gone(&engine, never.expect("it was called")).await);
    assert_eq!(shop_orders::table.select(shop_orders::id).load::<i32>(&mut connection).await?, [2]);
    engine.stop().await;
    Ok(())
}
