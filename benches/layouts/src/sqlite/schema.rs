//! Tables and statements of the row-per-job layouts on SQLite.
//!
//! There is one writer, so a claim reads the first jobs of a lane and then changes exactly that range:
//! everything up to the last rank and id it read.

use rusqlite::types::{FromSql, FromSqlResult, ToSqlOutput, ValueRef};
use rusqlite::{Result, ToSql};

use crate::job::{Id, IdKind};

/// A table layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    W,
    R1,
    R2,
    R3,
    A,
}

/// How jobs are keyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// `without rowid`, the 16-byte id is the primary key.
    Blob,
    /// A rowid table whose 64-bit id is the rowid.
    Integer,
    /// A rowid table with a unique index on the 16-byte id, by which other tables refer to jobs.
    Indexed,
    /// As `Indexed`, but the other tables refer to jobs by rowid; the 16-byte id is only for callers.
    Pair,
}

/// A layout with its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) layout: Layout,
    pub(crate) keys: Keys,
}

/// A job's id as SQLite holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key {
    Blob([u8; 16]),
    Integer(i64),
}

impl Key {
    /// The key by which the layout's tables refer to a submitted job.
    pub(crate) fn new(id: Id, ids: IdKind) -> Self {
        match ids {
            IdKind::Uuid => Key::Blob(id.0.to_be_bytes()),
            IdKind::Number => Key::Integer(id.number()),
        }
    }

    /// The key as an id.
    pub(crate) fn id(self) -> Id {
        match self {
            Key::Blob(bytes) => Id(u128::from_be_bytes(bytes)),
            Key::Integer(number) => Id(number as u128),
        }
    }
}

impl ToSql for Key {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(match self {
            Key::Blob(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Key::Integer(number) => ToSqlOutput::Borrowed(ValueRef::Integer(*number)),
        })
    }
}

impl FromSql for Key {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Integer(number) => Ok(Key::Integer(number)),
            _ => <[u8; 16]>::column_result(value).map(Key::Blob),
        }
    }
}

impl Shape {
    /// Ids that callers see.
    pub(crate) fn ids(self) -> IdKind {
        if self.keys == Keys::Integer { IdKind::Number } else { IdKind::Uuid }
    }

    /// The column of jobs to which the other tables refer.
    fn key(self) -> &'static str {
        if self.keys == Keys::Pair { "seq" } else { "id" }
    }

    /// The kind of ids by which the other tables refer to jobs.
    pub(crate) fn refers(self) -> IdKind {
        if matches!(self.keys, Keys::Pair | Keys::Integer) { IdKind::Number } else { IdKind::Uuid }
    }

    /// The tables.
    pub(crate) fn ddl(self) -> String {
        let columns = "rank integer not null, due_at integer not null, submitted_at integer not null,
             finished_at integer, worker integer, lane integer not null, attempts integer not null default 0,
             epoch integer not null default 0, rev integer not null default 0, state integer not null,
             priority integer not null, digest blob not null, input blob not null, key text, options blob,
             tags text, result blob, error text";
        let jobs = match self.keys {
            Keys::Blob => {
                format!("create table jobs (id blob primary key, {columns}) strict, without rowid;")
            }
            Keys::Integer => format!("create table jobs (id integer primary key, {columns}) strict;"),
            Keys::Indexed => format!("create table jobs (id blob not null unique, {columns}) strict;"),
            Keys::Pair => {
                format!(
                    "create table jobs (seq integer primary key, id blob not null unique, {columns}) strict;"
                )
            }
        };
        let job = if self.refers() == IdKind::Number { "integer" } else { "blob" };
        let ready = format!(
            "create table ready (lane integer, epoch integer not null, rank integer, job {job},
               primary key (lane, rank, job)) strict, without rowid;"
        );
        let rest = match self.layout {
            Layout::W => "create index jobs_ready on jobs (lane, rank, id) where state = 0;
                 create index jobs_running on jobs (worker) where state = 1;"
                .to_owned(),
            Layout::R1 | Layout::A => {
                format!("{ready} create index jobs_worker on jobs (worker) where worker is not null;")
            }
            Layout::R2 => format!(
                "{ready} create table running (job {job} primary key, worker integer not null,
                   epoch integer not null) strict, without rowid;
                 create index running_worker on running (worker);"
            ),
            Layout::R3 => format!(
                "{ready} create table claims (worker integer, number integer, jobs blob not null,
                   primary key (worker, number)) strict, without rowid;"
            ),
        };
        format!("{jobs} create unique index jobs_key on jobs (lane, key) where key is not null; {rest}")
    }

    /// Inserts a job. Parameters: id, rank, now, lane, digest, input.
    pub(crate) fn insert_job(self) -> &'static str {
        "insert into jobs (id, rank, due_at, submitted_at, lane, state, priority, digest, input)
         values (?1, ?2, ?3, ?3, ?4, 0, 0, ?5, ?6)"
    }

    /// Reads the first jobs of a lane. Parameters: lane, limit. Rows: id, rank, epoch, rev, attempts, input.
    pub(crate) fn peek(self) -> String {
        match self.layout {
            Layout::W => "select id, rank, epoch + 1, rev, attempts + 1, input from jobs
                 where state = 0 and lane = ?1 order by rank, id limit ?2"
                .to_owned(),
            Layout::R3 => format!(
                "select r.job, r.rank, r.epoch, j.rev, j.attempts + 1, j.input
                 from ready r cross join jobs j on j.{} = r.job
                 where r.lane = ?1 order by r.rank, r.job limit ?2",
                self.key()
            ),
            _ => format!(
                "select r.job, r.rank, r.epoch + 1, j.rev, j.attempts + 1, j.input
                 from ready r cross join jobs j on j.{} = r.job
                 where r.lane = ?1 order by r.rank, r.job limit ?2",
                self.key()
            ),
        }
    }

    /// Takes the range of a lane that was read. Parameters: lane, last rank, last id, worker (where used).
    pub(crate) fn take(self) -> Vec<String> {
        let range = "lane = ?1 and (rank, job) <= (?2, ?3)";
        let delete = format!("delete from ready where {range}");
        let run = "state = 1, worker = ?4, epoch = epoch + 1, attempts = attempts + 1";
        match self.layout {
            Layout::W => vec![format!(
                "update jobs set {run} where state = 0 and lane = ?1 and (rank, id) <= (?2, ?3)"
            )],
            Layout::R1 | Layout::A => vec![
                format!(
                    "update jobs set {run} where {} in (select job from ready where {range})",
                    self.key()
                ),
                delete,
            ],
            Layout::R2 => vec![
                format!(
                    "insert into running (job, worker, epoch) select job, ?4, epoch + 1 from ready where {range}"
                ),
                delete,
            ],
            Layout::R3 => vec![delete],
        }
    }

    /// Commits one job. Parameters: id, epoch, rev, result, now.
    pub(crate) fn commit(self) -> String {
        let key = self.key();
        let set = "state = 2, rev = rev + 1, result = ?4, finished_at = ?5";
        match self.layout {
            Layout::W | Layout::R1 | Layout::A => format!(
                "update jobs set {set}, worker = null where {key} = ?1 and epoch = ?2 and rev = ?3 and state = 1"
            ),
            Layout::R2 => format!(
                "update jobs set {set}, epoch = ?2, attempts = attempts + 1 where {key} = ?1 and rev = ?3"
            ),
            Layout::R3 => format!(
                "update jobs set {set}, attempts = attempts + 1
                 where {key} = ?1 and epoch = ?2 and rev = ?3 and state = 0"
            ),
        }
    }
}
