//! Rules that hold for many jobs.

use std::time::Duration;

use tokio_postgres::Row;
use windlass_model::{Limit, Time, rate::Level};

use super::{
    Postgres,
    control::{log, transaction},
    names::Names,
    pool::Guard,
    schedule, serial,
};
use crate::{By, Did, Error, Now, Rule, control::check_by, pick};

/// Reads a bucket as it comes.
pub(super) fn bucket(row: &Row) -> (Limit, Level, bool) {
    let limit = Limit {
        name: row.get(1),
        rate: row.get::<_, i64>(2) as u32,
        per: Duration::from_micros(row.get::<_, i64>(3) as u64),
        burst: row.get::<_, i64>(4) as u32,
    };
    (limit, Level { units: row.get(5), at: Time(row.get(6)) }, row.get(7))
}

async fn change(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Time,
    rule: &Rule,
    by: &By,
    names: &Names,
) -> Result<Did, Error> {
    match rule {
        Rule::Schedule(what) => schedule::put(conn, now, what).await,
        Rule::DropSchedule(name) => schedule::drop(conn, name).await,
        Rule::PauseSchedule(name) => schedule::pause(conn, now, name, Some(by)).await,
        Rule::ResumeSchedule(name) => schedule::pause(conn, now, name, None).await,
        Rule::Trigger(name) => schedule::trigger(store, conn, now, name, names).await,
        Rule::PauseQueue(queue) => {
            conn.execute(include_str!("sql/intern_queue.sql"), &[&vec![queue]]).await?;
            let at = Some(now.micros());
            let sql = include_str!("sql/rule_queue.sql");
            let rows = conn.query(sql, &[queue, &at, &Some(&by.author), &by.note]).await?;
            if rows.is_empty() {
                let rows = conn.query(include_str!("sql/rule_paused.sql"), &[queue]).await?;
                let author: String = rows.first().map(|row| row.get(0)).unwrap_or_default();
                return Ok(Did::Already(format!("it was paused by {author} before")));
            }
            Ok(Did::Done)
        }
        Rule::ResumeQueue(queue) => {
            let none: Option<String> = None;
            let sql = include_str!("sql/rule_queue.sql");
            let rows = conn.query(sql, &[queue, &None::<i64>, &none, &none]).await?;
            let Some(row) = rows.first() else { return Ok(Did::Already("it is not paused".into())) };
            let gates: Vec<i32> = vec![row.get(0)];
            conn.execute(include_str!("sql/rule_gates.sql"), &[&gates, &conn.gate_writer]).await?;
            Ok(Did::Done)
        }
        Rule::Limit(limit) => {
            let rows = conn.query(include_str!("sql/rule_bucket_lock.sql"), &[&limit.name]).await?;
            let level = match rows.first().map(bucket) {
                Some((old, _, false)) if old == *limit => return Ok(Did::Already("it is so already".into())),
                Some((old, level, _)) => level.under(&old, limit, now),
                None => Level::full(limit, now),
            };
            let (rate, per, burst) =
                (i64::from(limit.rate), limit.per.as_micros() as i64, i64::from(limit.burst));
            let sql = include_str!("sql/rule_bucket.sql");
            conn.execute(sql, &[&limit.name, &rate, &per, &burst, &level.units, &level.at.micros()]).await?;
            let sql = include_str!("sql/rule_bucket_gates.sql");
            conn.execute(sql, &[&limit.name, &conn.gate_writer]).await?;
            Ok(Did::Done)
        }
        Rule::Lift(name) => {
            if conn.execute(include_str!("sql/rule_lift.sql"), &[name]).await? == 0 {
                let rows = conn.query(include_str!("sql/rule_bucket_lock.sql"), &[name]).await?;
                return Ok(match rows.is_empty() {
                    true => Did::Unknown,
                    false => Did::Already("it is lifted".into()),
                });
            }
            conn.execute(include_str!("sql/rule_bucket_gates.sql"), &[name, &conn.gate_writer]).await?;
            Ok(Did::Done)
        }
        Rule::Slots { key, slots } => {
            let rows = conn.query(include_str!("sql/rule_slots.sql"), &[key, &(*slots as i32)]).await?;
            if let Some(row) = rows.first() {
                serial::settle_key(conn, row.get(0)).await?;
            }
            Ok(Did::Done)
        }
    }
}

pub(super) async fn rule(store: &Postgres, now: Now, rule: &Rule, by: &By) -> Result<Did, Error> {
    check_by(by)?;
    pick::check_rule(rule, &store.shared.options.limits)?;
    let names = match rule {
        Rule::Schedule(what) => Names::of(store, &[what.job(Time(0))]).await?,
        Rule::Trigger(name) => schedule::names_of(store, name).await?,
        _ => Names::default(),
    };
    transaction(store, now, async |conn, now| {
        let did = change(store, conn, now, rule, by, &names).await?;
        if matches!(did, Did::Done | Did::Made(_)) {
            let (action, subject) = pick::rule_action(rule);
            log(conn, now, &action, &[subject], by).await?;
        }
        Ok(did)
    })
    .await
}
