//! Jobs that were submitted in transactions of others: rows of `arrivals`, which the next worker admits.
//!
//! A row leaves the table in the transaction that inserts its job. One that cannot be admitted becomes a job as well,
//! which has ended and says why, so that its submitter finds it; and it never holds up the others.

use std::time::Duration;

use rusqlite::{
    Connection, Row, params,
    types::{FromSql, ValueRef},
};
use serde::de::DeserializeOwned;
use windlass_model::{
    Failure, JobId, Limits, NewJob, Payload, Reason, Settings, State, SubmitOutcome, Time, When,
    failure::class, limits::check_name,
};

use super::{
    rate::{self, Buckets},
    sql,
    submit::{self, insert_jobs, intern_serial_keys, serial_key_of},
    tx::{TIMER_GATE_ID, Tx},
};
use crate::{Error, arrival, columns};

/// The class of the error of a job whose key or unique name another job has.
const DUPLICATE: &str = "duplicate";
/// The kind or queue of a job whose own name cannot be used.
const UNNAMED: &str = "unnamed";

/// Submits a job in a transaction of the caller's own: it exists if that transaction commits, and runs soon after.
/// `tx` must be a connection to the store's file.
///
/// `Ok` says only that the job itself is valid. Whether its key or its unique name is taken, and whether its rate
/// limit exists, is checked when it is admitted; if that fails, it exists as a cancelled or failed job that says why.
pub fn submit_in(tx: &Connection, job: &NewJob, limits: &Limits) -> Result<(), Error> {
    arrival::check(job, limits)?;
    let (at, delay) = match job.when {
        When::Now => (None, 0),
        When::After(delay) => (None, i64::try_from(delay.as_micros()).unwrap_or(i64::MAX)),
        When::At(at) => (Some(at.micros()), 0),
    };
    let tags = (!job.tags.is_empty()).then(|| serde_json::to_string(&job.tags).expect("text is plain data"));
    let mut statement = tx.prepare_cached(sql::arrivals::APPEND)?;
    statement.execute(params![
        job.id.as_bytes(),
        job.kind.kind,
        job.kind.version,
        job.queue,
        job.key,
        job.priority,
        at,
        delay,
        job.deadline_at.map(Time::micros),
        job.parent.as_ref().map(JobId::as_bytes),
        tags,
        job.options,
        columns::settings_text(&job.settings),
        job.input.codec,
        job.input.bytes,
        &job.digest,
        job.stage,
    ])?;
    Ok(())
}

/// The result of admitting a batch of arrivals.
#[derive(Default)]
pub(super) struct Admitted {
    /// How many are jobs now.
    pub(super) admitted: usize,
    /// Whether lanes were added that must be read after the commit.
    pub(super) added_lanes: bool,
}

/// A row of the table.
struct Arrival {
    seq: i64,
    /// The job, as far as it can be read, and what is wrong with it; `None` if not even its id can be read.
    job: Option<(NewJob, Result<(), String>)>,
}

/// Admits the oldest arrivals, up to `limit`.
pub(super) fn admit(tx: &Tx<'_>, now: Time, limit: usize) -> Result<Admitted, Error> {
    let limits = &tx.store.shared.options.limits;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = tx.query_all(sql::arrivals::READ_OLDEST, [limit], |row| Arrival::read(row, limits))?;
    let mut report = Admitted::default();
    for Arrival { seq, job } in rows {
        match job {
            Some((job, fault)) => {
                tx.execute("savepoint arrival", [])?;
                let mut result = match fault {
                    Ok(()) => admit_one(tx, now, &job, &mut report),
                    Err(why) => refuse(tx, now, &job, &why, &mut report),
                };
                if let Err(Error::Refused(why)) = result {
                    tx.execute("rollback to arrival", [])?;
                    result = refuse(tx, now, &job, &why, &mut report);
                }
                result?;
                tx.execute("release arrival", [])?;
            }
            None => tracing::warn!(seq, "an arrival has no id of a job and was dropped"),
        }
        tx.execute(sql::arrivals::REMOVE, [seq])?;
        // Numbers of arrivals are used again, so the version of the gate must not repeat.
        tx.bump_gate(TIMER_GATE_ID);
    }
    Ok(report)
}

fn admit_one(tx: &Tx<'_>, now: Time, job: &NewJob, report: &mut Admitted) -> Result<(), Error> {
    let one = std::slice::from_ref(job);
    let buckets = match rate::check_in(tx, one.iter()) {
        Err(Error::Invalid(why)) => return refuse(tx, now, job, &why.to_string(), report),
        buckets => buckets?,
    };
    intern_lane(tx, job, &buckets, report)?;
    match insert_jobs(tx, now, one, &buckets, None)?.remove(0) {
        SubmitOutcome::New { .. } | SubmitOutcome::Replaced { .. } => report.admitted += 1,
        SubmitOutcome::Existing { id, .. } | SubmitOutcome::Rejected { id } => {
            let what = match (&job.key, &job.settings.unique) {
                (_, None) => "key",
                (None, _) => "unique name",
                _ => "key or unique name",
            };
            let message = format!("job {id} has its {what} already, so it was not admitted");
            let without_key = NewJob { key: None, ..job.clone() };
            let failure = Failure::cancel(message).class(DUPLICATE);
            end(tx, now, &without_key, &buckets, (State::Cancelled, None), &failure)?;
            report.admitted += 1;
        }
        SubmitOutcome::Repeated => {}
        SubmitOutcome::IdTaken => warn_id_taken(job.id),
    }
    Ok(())
}

/// Inserts what can be read of an arrival as a failed job.
fn refuse(tx: &Tx<'_>, now: Time, job: &NewJob, why: &str, report: &mut Admitted) -> Result<(), Error> {
    let mut refused = NewJob::new(job.id, &job.kind.kind, &job.queue, job.input.clone());
    (refused.kind.version, refused.digest) = (job.kind.version, job.digest);
    intern_lane(tx, &refused, &Buckets::new(), report)?;
    let failure = Failure::stop(why).class(class::REFUSED);
    let reason = Some(columns::reason_number(Reason::Refused));
    if end(tx, now, &refused, &Buckets::new(), (State::Failed, reason), &failure)? {
        report.admitted += 1;
        return Ok(());
    }
    let existing = tx.query_one(sql::submit::FIND_BY_ID, [job.id.as_bytes()], |row| row.get(0))?;
    if existing != Some(job.digest) {
        warn_id_taken(job.id);
    }
    Ok(())
}

fn warn_id_taken(id: JobId) {
    tracing::warn!(job = %id, "an arrival has the id of another job and was dropped; make a new id for every job");
}

/// Inserts a job that has ended. Returns whether its id was free.
fn end(
    tx: &Tx<'_>,
    now: Time,
    job: &NewJob,
    buckets: &Buckets,
    (state, reason): (State, Option<i16>),
    failure: &Failure,
) -> Result<bool, Error> {
    let serial_keys = intern_serial_keys(tx, std::slice::from_ref(job))?;
    let lane = tx.lane_for((&job.queue, &job.kind, rate::bucket_of(job, buckets)))?;
    let row = submit::NewRow {
        lane: &lane,
        due_at: job.when.due_at(now),
        serial_key: serial_key_of(job, &serial_keys),
    };
    let mut insert = tx.prepare(sql::submit::INSERT)?;
    if !row.insert(tx, &mut insert, now, job)? {
        return Ok(false);
    }
    let params = params![
        job.id.as_bytes(),
        columns::state_number(state),
        reason,
        columns::failure_text(failure),
        now.micros()
    ];
    tx.execute(sql::arrivals::END_REFUSED, params)?;
    tx.count_moved(lane.id, State::Ready, state);
    tx.record_end(now, lane.id, state, None, None);
    Ok(true)
}

/// Gives a number to a job's lane if it has none.
fn intern_lane(tx: &Tx<'_>, job: &NewJob, buckets: &Buckets, report: &mut Admitted) -> Result<(), Error> {
    let name = (job.queue.as_str(), &job.kind, rate::bucket_of(job, buckets));
    if tx.store.shared.lanes.get_in(name.0, name.1, name.2).is_none() {
        tx.intern(name)?;
        report.added_lanes = true;
    }
    Ok(())
}

impl Arrival {
    fn read(row: &Row<'_>, limits: &Limits) -> rusqlite::Result<Arrival> {
        let seq = row.get(0)?;
        let id = match row.get_ref(1)? {
            ValueRef::Blob(bytes) => bytes.try_into().ok().map(JobId::from_bytes),
            ValueRef::Text(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
            _ => None,
        };
        let Some(id) = id else { return Ok(Arrival { seq, job: None }) };
        let fault = match read_job(id, row, limits) {
            Ok(job) => return Ok(Arrival { seq, job: Some((job, Ok(()))) }),
            Err(fault) => fault,
        };
        let name = |column| {
            let name = row.get(column).ok().filter(|name: &String| check_name("name", name).is_ok());
            name.unwrap_or_else(|| UNNAMED.to_owned())
        };
        let input = input(row).unwrap_or_default();
        let input = Some(input).filter(|input| limits.check_payload("input", &input.bytes).is_ok());
        let mut refused = NewJob::new(id, &name(2), &name(4), input.unwrap_or_default());
        refused.kind.version = row.get(3).ok().filter(|version| *version > 0).unwrap_or(1);
        if let Ok(Some(digest)) = digest(row) {
            refused.digest = digest;
        }
        Ok(Arrival { seq, job: Some((refused, Err(fault))) })
    }
}

/// The job that a row describes, or what is wrong with the row.
fn read_job(id: JobId, row: &Row<'_>, limits: &Limits) -> Result<NewJob, String> {
    let kind: String = field(row, 2, "kind")?;
    let mut job = NewJob::new(id, &kind, &field::<String>(row, 4, "queue")?, input(row)?);
    job.kind.version = field(row, 3, "version")?;
    job.key = field(row, 5, "key")?;
    job.priority = field(row, 6, "priority")?;
    job.when = match (field::<Option<i64>>(row, 7, "at")?, field::<i64>(row, 8, "delay")?) {
        (Some(at), _) => When::At(Time(at)),
        (None, 0) => When::Now,
        (None, delay) => {
            let delay =
                u64::try_from(delay).map_err(|_| format!("the delay is {delay}, which is negative"))?;
            When::After(Duration::from_micros(delay))
        }
    };
    job.deadline_at = field::<Option<i64>>(row, 9, "deadline_at")?.map(Time);
    job.parent = field::<Option<[u8; 16]>>(row, 10, "parent")?.map(JobId::from_bytes);
    job.tags = json(row, 11, "tags")?.unwrap_or_default();
    job.options = field(row, 12, "options")?;
    job.settings = json::<Settings>(row, 13, "settings")?.unwrap_or_default();
    job.stage = field(row, 17, "stage")?;
    if let Some(digest) = digest(row)? {
        job.digest = digest;
    }
    limits.check(&job).map_err(|invalid| invalid.to_string())?;
    Ok(job)
}

fn field<T: FromSql>(row: &Row<'_>, column: usize, name: &str) -> Result<T, String> {
    row.get(column).map_err(|error| format!("the column {name} cannot be read ({error})"))
}

fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize, name: &str) -> Result<Option<T>, String> {
    let Some(text) = field::<Option<String>>(row, column, name)? else { return Ok(None) };
    let value = serde_json::from_str(&text);
    value.map(Some).map_err(|error| format!("the column {name} does not hold what it should ({error})"))
}

fn input(row: &Row<'_>) -> Result<Payload, String> {
    let codec = field(row, 14, "codec")?;
    match row.get_ref(15) {
        Ok(ValueRef::Blob(bytes) | ValueRef::Text(bytes)) => Ok(Payload { codec, bytes: bytes.to_vec() }),
        _ => Err("the column input holds neither bytes nor text".into()),
    }
}

fn digest(row: &Row<'_>) -> Result<Option<[u8; 16]>, String> {
    field::<Option<[u8; 16]>>(row, 16, "digest").map_err(|_| "the digest is not 16 bytes long".into())
}

/// Whether a job waits to be admitted. There is no index: arrivals are few, and do not stay long.
pub(super) fn is_arriving(tx: &Tx<'_>, id: JobId) -> Result<bool, Error> {
    let params = params![id.as_bytes(), id.to_string()];
    Ok(tx.query_one(sql::arrivals::IS_WAITING, params, |row| row.get(0))?.unwrap_or(false))
}
