//! What people do to queues, schedules, rate limits and serial keys.

use windlass_model::{RateLimit, Time, rate::BucketLevel};

use super::{
    Postgres,
    change_params::Param,
    control::{log, transaction},
    errors::PgError,
    names::Names,
    rate::read_bucket,
    schedule, serial, sql,
    tx::Tx,
};
use crate::{Actor, AdminAction, ControlOutcome, Now, columns, control::check_actor};

pub(super) async fn administer(
    store: &Postgres,
    now: Now,
    action: &AdminAction,
    actor: &Actor,
) -> Result<ControlOutcome, PgError> {
    check_actor(actor)?;
    columns::check_admin(action, &store.shared.options.limits)?;
    // Before the transaction: names are added over another connection.
    let names = match action {
        AdminAction::Schedule(schedule) => Names::of(store, &[schedule.job(Time(0))]).await?,
        AdminAction::Trigger { name, .. } => schedule::names_of(store, name).await?,
        _ => Names::default(),
    };
    transaction(store, now, async |tx, now| {
        let outcome = apply(store, tx, now, action, actor, &names).await?;
        if matches!(outcome, ControlOutcome::Done | ControlOutcome::Created(_)) {
            let (action, subject) = columns::admin_action(action);
            log(tx, now, &action, &[subject], actor).await?;
        }
        Ok(outcome)
    })
    .await
}

async fn apply(
    store: &Postgres,
    tx: &Tx<'_>,
    now: Time,
    action: &AdminAction,
    actor: &Actor,
    names: &Names,
) -> Result<ControlOutcome, PgError> {
    match action {
        AdminAction::Schedule(schedule) => schedule::set(tx, now, schedule).await,
        AdminAction::DropSchedule(name) => schedule::drop(tx, name).await,
        AdminAction::PauseSchedule(name) => schedule::pause(tx, now, name, Some(actor)).await,
        AdminAction::ResumeSchedule(name) => schedule::pause(tx, now, name, None).await,
        AdminAction::Trigger { name, id } => schedule::trigger(store, tx, now, name, *id, names).await,
        AdminAction::PauseQueue(queue) => pause_queue(tx, now, queue, actor).await,
        AdminAction::ResumeQueue(queue) => resume_queue(tx, queue).await,
        AdminAction::Limit(limit) => set_limit(tx, now, limit).await,
        AdminAction::Lift(name) => lift_limit(tx, name).await,
        AdminAction::Slots { key, slots } => {
            let rows = tx.query(sql::serial::SET_SLOTS, &[key, &(*slots as i32)]).await?;
            if let Some(row) = rows.first() {
                serial::settle_key(tx, row.get(0)).await?;
            }
            Ok(ControlOutcome::Done)
        }
    }
}

async fn pause_queue(
    tx: &Tx<'_>,
    now: Time,
    queue: &String,
    actor: &Actor,
) -> Result<ControlOutcome, PgError> {
    tx.execute(sql::names::ADD_QUEUE, &[&vec![queue]]).await?;
    let params: [Param<'_>; 4] = [queue, &Some(now.micros()), &Some(&actor.author), &actor.note];
    let rows = tx.query(sql::admin::PAUSE_OR_RESUME_QUEUE, &params).await?;
    if rows.is_empty() {
        let rows = tx.query(sql::admin::QUEUE_PAUSED_BY, &[queue]).await?;
        let author: String = rows.first().map(|row| row.get(0)).unwrap_or_default();
        return Ok(ControlOutcome::Already(format!("it was paused by {author} before")));
    }
    Ok(ControlOutcome::Done)
}

async fn resume_queue(tx: &Tx<'_>, queue: &String) -> Result<ControlOutcome, PgError> {
    let none: Option<String> = None;
    let sql = sql::admin::PAUSE_OR_RESUME_QUEUE;
    let rows = tx.query(sql, &[queue, &None::<i64>, &none, &none]).await?;
    let Some(row) = rows.first() else {
        return Ok(ControlOutcome::Already("it is not paused".into()));
    };
    let gates: Vec<i32> = vec![row.get(0)];
    tx.execute(sql::gates::BUMP, &[&gates, &tx.gate_writer]).await?;
    Ok(ControlOutcome::Done)
}

async fn set_limit(tx: &Tx<'_>, now: Time, limit: &RateLimit) -> Result<ControlOutcome, PgError> {
    let rows = tx.query(sql::rate::LOCK_NAMED, &[&limit.name]).await?;
    let level = match rows.first().map(read_bucket) {
        Some((old, _, false)) if old == *limit => {
            return Ok(ControlOutcome::Already("it is so already".into()));
        }
        Some((old, level, _)) => level.converted(&old, limit, now),
        None => BucketLevel::full(limit, now),
    };
    let (rate, per, burst) = (i64::from(limit.rate), limit.per.as_micros() as i64, i64::from(limit.burst));
    let params: [Param<'_>; 6] = [&limit.name, &rate, &per, &burst, &level.units, &level.at.micros()];
    tx.execute(sql::rate::SET, &params).await?;
    tx.execute(sql::rate::BUMP_GATES, &[&limit.name, &tx.gate_writer]).await?;
    Ok(ControlOutcome::Done)
}

async fn lift_limit(tx: &Tx<'_>, name: &String) -> Result<ControlOutcome, PgError> {
    if tx.execute(sql::rate::LIFT, &[name]).await? == 0 {
        let rows = tx.query(sql::rate::LOCK_NAMED, &[name]).await?;
        return Ok(match rows.is_empty() {
            true => ControlOutcome::Unknown,
            false => ControlOutcome::Already("it is lifted".into()),
        });
    }
    tx.execute(sql::rate::BUMP_GATES, &[name, &tx.gate_writer]).await?;
    Ok(ControlOutcome::Done)
}
