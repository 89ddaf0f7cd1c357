//! A submit in a transaction of sqlx.

mod shop;

use serde_json::json;
use shop::{ORDERS, is_gone, result, start};
use sqlx::{Connection, PgConnection, Postgres, Transaction};
use uuid::Uuid;

/// Inserts an order, and submits the job that confirms it.
async fn take(tx: &mut Transaction<'_, Postgres>, order: i32, goods: &str) -> sqlx::Result<Uuid> {
    sqlx::query("insert into shop_orders (id, goods) values ($1, $2)")
        .bind(order)
        .bind(goods)
        .execute(&mut **tx)
        .await?;
    sqlx::query_scalar("select windlass.submit('confirm', $1, key => $2, tags => $3)")
        .bind(json!({ "order": order }))
        .bind(format!("order-{order}"))
        .bind(vec!["shop"])
        .fetch_one(&mut **tx)
        .await
}

#[tokio::test]
async fn an_order_and_its_job_are_committed_together_or_not_at_all() -> sqlx::Result<()> {
    let (cluster, engine) = start().await;
    let mut connection = PgConnection::connect(&cluster.url()).await?;
    sqlx::query(ORDERS).execute(&mut connection).await?;

    let mut tx = connection.begin().await?;
    let never = take(&mut tx, 1, "a chair").await?;
    tx.rollback().await?;

    let mut tx = connection.begin().await?;
    let id = take(&mut tx, 2, "a lamp").await?;
    tx.commit().await?;

    assert_eq!(result(&engine, id).await, "order 2 is confirmed");
    assert!(is_gone(&engine, never).await);
    let orders: Vec<i32> =
        sqlx::query_scalar("select id from shop_orders").fetch_all(&mut connection).await?;
    assert_eq!(orders, [2]);
    engine.stop().await;
    Ok(())
}
