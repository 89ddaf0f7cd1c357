//! Tables and statements of the row-per-job layouts (W, R1, R2, R3) on PostgreSQL.
//!
//! All claims find their rows in the same way: a lateral query per lane walks the index in rank order and
//! locks with `skip locked`, and the rows found are then changed by their physical address (`ctid`).

use crate::job::IdKind;

use super::id_type;

/// A table layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One wide table with partial indexes by state.
    W,
    /// Jobs and a narrow `ready` table; running is a column of jobs, indexed by worker.
    R1,
    /// R1 without the index by worker, so that claims and commits can be heap-only updates.
    R1h,
    /// Jobs, `ready` and a narrow `running` table.
    R2,
    /// Jobs, `ready` and one `claims` row for each claimed batch.
    R3,
    /// Append-only events and completions with a cursor per lane.
    A,
}

/// A layout with its choices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) layout: Layout,
    pub(crate) ids: IdKind,
    pub(crate) fillfactor: u32,
    /// R3: whether a claim locks the ready rows before it deletes them (`for update skip locked`).
    pub(crate) row_locks: bool,
    /// R3: whether the arrays of a claim may be compressed.
    pub(crate) compress: bool,
}

impl Shape {
    /// The layout with UUIDs and full pages.
    pub(crate) fn plain(layout: Layout) -> Self {
        Shape { layout, ids: IdKind::Uuid, fillfactor: 100, row_locks: true, compress: true }
    }
}

/// The tables of a layout.
pub(crate) fn ddl(shape: Shape) -> String {
    if shape.layout == Layout::A {
        return super::append::ddl();
    }
    let id = id_type(shape.ids);
    let jobs = format!(
        "create table jobs (
           id {id} primary key, rank int8 not null, due_at int8 not null, submitted_at int8 not null,
           finished_at int8, worker int8, lane int4 not null, attempts int4 not null default 0,
           epoch int4 not null default 0, rev int4 not null default 0, state int2 not null,
           priority int2 not null, digest bytea not null, input bytea not null, key text,
           options bytea, tags text[], result bytea, error text
         ) with (fillfactor = {}, autovacuum_enabled = off);
         create unique index jobs_key on jobs (lane, key) where key is not null;",
        shape.fillfactor
    );
    let ready = format!(
        "create table ready (lane int4 not null, epoch int4 not null, rank int8 not null, job {id} not null,
           primary key (lane, rank, job)) with (autovacuum_enabled = off);"
    );
    let rest = match shape.layout {
        Layout::W => {
            "create index jobs_ready on jobs (lane, rank, id) where state = 0;
             create index jobs_running on jobs (worker) where state = 1;"
                .to_owned()
        }
        Layout::R1 => format!("{ready} create index jobs_worker on jobs (worker) where worker is not null;"),
        Layout::R1h | Layout::A => ready,
        Layout::R2 => format!(
            "{ready} create table running (job {id} primary key, worker int8 not null, epoch int4 not null)
               with (autovacuum_enabled = off);
             create index running_worker on running (worker);"
        ),
        Layout::R3 => format!(
            "{ready} create table claims (worker int8, number int8, jobs {id}[] not null, epochs int4[] not null,
               primary key (worker, number)) with (autovacuum_enabled = off); {}",
            if shape.compress {
                ""
            } else {
                "alter table claims alter jobs set storage external, alter epochs set storage external;"
            }
        ),
    };
    jobs + &rest
}

/// Submits a batch. Parameters: ids, lanes, ranks, inputs, digests, now.
pub(crate) fn submit(shape: Shape) -> String {
    let id = id_type(shape.ids);
    let jobs = format!(
        "insert into jobs (id, rank, due_at, submitted_at, lane, state, priority, digest, input)
         select d.id, d.rank, $6::int8, $6::int8, d.lane, 0, 0, d.digest, d.input
         from unnest($1::{id}[], $2::int4[], $3::int8[], $4::bytea[], $5::bytea[])
           as d (id, lane, rank, input, digest)"
    );
    match shape.layout {
        Layout::W => jobs,
        _ => format!(
            "with j as ({jobs})
             insert into ready (lane, epoch, rank, job) select d.lane, 0, d.rank, d.id
             from unnest($1::{id}[], $2::int4[], $3::int8[]) as d (id, lane, rank)"
        ),
    }
}

/// Claims a batch. Parameters: lanes, limit, worker and the lowest rank to look at in each lane; for R3 also the
/// claim's number and the numbers of finished claims. Rows: id, lane, rank, epoch, rev, attempts, input.
pub(crate) fn claim(shape: Shape) -> String {
    let lock = if shape.row_locks { "for update skip locked" } else { "" };
    let find = |table: &str, job: &str, filter: &str| {
        format!(
            "ctid = any(array(select r.ctid from unnest($1::int4[], $4::int8[]) as l (lane, floor), lateral (
               select t.ctid from {table} t where t.lane = l.lane and t.rank >= l.floor {filter}
               order by t.rank, t.{job} limit $2
               {lock}) r limit $2))"
        )
    };
    let taken = format!(
        "taken as (delete from ready where {} returning lane, epoch, rank, job)",
        find("ready", "job", "")
    );
    let run = "state = 1, worker = $3::int8, epoch = j.epoch + 1, attempts = j.attempts + 1";
    match shape.layout {
        Layout::W => format!(
            "update jobs j set {run} where j.{}
             returning j.id, j.lane, j.rank, j.epoch, j.rev, j.attempts, j.input",
            find("jobs", "id", "and t.state = 0")
        ),
        Layout::R1 | Layout::R1h | Layout::A => format!(
            "with {taken} update jobs j set {run} from taken t where j.id = t.job
             returning j.id, t.lane, t.rank, j.epoch, j.rev, j.attempts, j.input"
        ),
        Layout::R2 => format!(
            "with {taken}, held as (
               select t.job, t.lane, t.rank, t.epoch + 1 as epoch, j.rev, j.attempts + 1 as attempts, j.input
               from taken t join jobs j on j.id = t.job),
             put as (insert into running (job, worker, epoch) select job, $3::int8, epoch + 1 from taken)
             select * from held"
        ),
        Layout::R3 => format!(
            "with {taken},
             noted as (insert into claims (worker, number, jobs, epochs)
               select $3::int8, $5::int8, array_agg(job), array_agg(epoch) from taken having count(*) > 0),
             dropped as (delete from claims where worker = $3::int8 and number = any($6::int8[]))
             select t.job, t.lane, t.rank, t.epoch, j.rev, j.attempts + 1 as attempts, j.input
             from taken t join jobs j on j.id = t.job"
        ),
    }
}

/// Commits a batch of results. Parameters: ids, epochs, revs, results, now.
pub(crate) fn commit(shape: Shape) -> String {
    let id = id_type(shape.ids);
    let done =
        format!("unnest($1::{id}[], $2::int4[], $3::int4[], $4::bytea[]) as d (id, epoch, rev, result)");
    let set = "state = 2, rev = j.rev + 1, result = d.result, finished_at = $5::int8";
    match shape.layout {
        Layout::W | Layout::R1 | Layout::R1h | Layout::A => format!(
            "update jobs j set {set}, worker = null from {done}
             where j.id = d.id and j.epoch = d.epoch and j.rev = d.rev and j.state = 1"
        ),
        Layout::R2 => format!(
            "with d as (delete from running r using {done} where r.job = d.id and r.epoch = d.epoch
               returning d.id, d.epoch, d.rev, d.result)
             update jobs j set {set}, epoch = d.epoch, attempts = j.attempts + 1 from d
             where j.id = d.id and j.rev = d.rev"
        ),
        Layout::R3 => format!(
            "update jobs j set {set}, attempts = j.attempts + 1 from {done}
             where j.id = d.id and j.epoch = d.epoch and j.rev = d.rev and j.state = 0"
        ),
    }
}
