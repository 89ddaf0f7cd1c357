//! Rules that hold for many jobs.

use windlass_model::{Time, rate::BucketLevel};

use super::{
    Postgres,
    control::{log, transaction},
    names::Names,
    pool::Guard,
    rate::bucket,
    schedule, serial, sql,
};
use crate::{Actor, AdminAction, ControlOutcome, Error, Now, columns, control::check_actor};

async fn change(
    store: &Postgres,
    conn: &Guard<'_>,
    now: Time,
    rule: &AdminAction,
    by: &Actor,
    names: &Names,
) -> Result<ControlOutcome, Error> {
    match rule {
        AdminAction::Schedule(what) => schedule::put(conn, now, what).await,
        AdminAction::DropSchedule(name) => schedule::drop(conn, name).await,
        AdminAction::PauseSchedule(name) => schedule::pause(conn, now, name, Some(by)).await,
        AdminAction::ResumeSchedule(name) => schedule::pause(conn, now, name, None).await,
        AdminAction::Trigger(name) => schedule::trigger(store, conn, now, name, names).await,
        AdminAction::PauseQueue(queue) => {
            conn.execute(sql::names::ADD_QUEUE, &[&vec![queue]]).await?;
            let at = Some(now.micros());
            let sql = sql::admin::PAUSE_OR_RESUME_QUEUE;
            let rows = conn.query(sql, &[queue, &at, &Some(&by.author), &by.note]).await?;
            if rows.is_empty() {
                let rows = conn.query(sql::admin::QUEUE_PAUSED_BY, &[queue]).await?;
                let author: String = rows.first().map(|row| row.get(0)).unwrap_or_default();
                return Ok(ControlOutcome::Already(format!("it was paused by {author} before")));
            }
            Ok(ControlOutcome::Done)
        }
        AdminAction::ResumeQueue(queue) => {
            let none: Option<String> = None;
            let sql = sql::admin::PAUSE_OR_RESUME_QUEUE;
            let rows = conn.query(sql, &[queue, &None::<i64>, &none, &none]).await?;
            let Some(row) = rows.first() else {
                return Ok(ControlOutcome::Already("it is not paused".into()));
            };
            let gates: Vec<i32> = vec![row.get(0)];
            conn.execute(sql::gates::BUMP, &[&gates, &conn.gate_writer]).await?;
            Ok(ControlOutcome::Done)
        }
        AdminAction::Limit(limit) => {
            let rows = conn.query(sql::rate::LOCK_NAMED, &[&limit.name]).await?;
            let level = match rows.first().map(bucket) {
                Some((old, _, false)) if old == *limit => {
                    return Ok(ControlOutcome::Already("it is so already".into()));
                }
                Some((old, level, _)) => level.converted(&old, limit, now),
                None => BucketLevel::full(limit, now),
            };
            let (rate, per, burst) =
                (i64::from(limit.rate), limit.per.as_micros() as i64, i64::from(limit.burst));
            let sql = sql::rate::SET;
            conn.execute(sql, &[&limit.name, &rate, &per, &burst, &level.units, &level.at.micros()]).await?;
            let sql = sql::rate::BUMP_GATES;
            conn.execute(sql, &[&limit.name, &conn.gate_writer]).await?;
            Ok(ControlOutcome::Done)
        }
        AdminAction::Lift(name) => {
            if conn.execute(sql::rate::LIFT, &[name]).await? == 0 {
                let rows = conn.query(sql::rate::LOCK_NAMED, &[name]).await?;
                return Ok(match rows.is_empty() {
                    true => ControlOutcome::Unknown,
                    false => ControlOutcome::Already("it is lifted".into()),
                });
            }
            conn.execute(sql::rate::BUMP_GATES, &[name, &conn.gate_writer]).await?;
            Ok(ControlOutcome::Done)
        }
        AdminAction::Slots { key, slots } => {
            let rows = conn.query(sql::serial::SET_SLOTS, &[key, &(*slots as i32)]).await?;
            if let Some(row) = rows.first() {
                serial::settle_key(conn, row.get(0)).await?;
            }
            Ok(ControlOutcome::Done)
        }
    }
}

pub(super) async fn rule(
    store: &Postgres,
    now: Now,
    rule: &AdminAction,
    by: &Actor,
) -> Result<ControlOutcome, Error> {
    check_actor(by)?;
    columns::check_admin(rule, &store.shared.options.limits)?;
    let names = match rule {
        AdminAction::Schedule(what) => Names::of(store, &[what.job(Time(0))]).await?,
        AdminAction::Trigger(name) => schedule::names_of(store, name).await?,
        _ => Names::default(),
    };
    transaction(store, now, async |conn, now| {
        let did = change(store, conn, now, rule, by, &names).await?;
        if matches!(did, ControlOutcome::Done | ControlOutcome::Created(_)) {
            let (action, subject) = columns::admin_action(rule);
            log(conn, now, &action, &[subject], by).await?;
        }
        Ok(did)
    })
    .await
}
