//! Layout A on SQLite: insert-only events and completions in segments, with a cursor per lane.

use std::time::Instant;

use anyhow::{Result, ensure};
use rusqlite::{OptionalExtension, params};

use crate::job::{self, CLAIM_BATCH, Claimed, Id, Job, SUBMIT_BATCH, WORKER};

use super::Database;

/// Segments of one run.
const SEGMENTS: usize = 4;

/// The tables.
pub(crate) fn ddl() -> String {
    let mut ddl = "create table cursors (segment integer, lane integer, next integer not null,
           primary key (segment, lane)) strict, without rowid;
         create table claims (worker integer, number integer, segment integer not null, lane integer not null,
           first integer not null, last integer not null, epoch integer not null,
           primary key (worker, number)) strict, without rowid;"
        .to_owned();
    for segment in 0..SEGMENTS {
        ddl += &format!(
            "create table events_{segment} (lane integer, seq integer, rank integer not null,
               due_at integer not null, submitted_at integer not null, id blob not null,
               priority integer not null, digest blob not null, input blob not null, key text, options blob,
               tags text, primary key (lane, seq)) strict, without rowid;
             create table done_{segment} (seq integer primary key, finished_at integer not null,
               attempts integer not null, state integer not null, result blob, error text) strict;"
        );
    }
    ddl
}

/// Submits the jobs, a quarter of them to each segment.
pub(crate) fn submit(database: &mut Database, jobs: &[Job]) -> Result<()> {
    let mut seq = 0i64;
    for (segment, part) in jobs.chunks(jobs.len().div_ceil(SEGMENTS)).enumerate() {
        let sql = format!(
            "insert into events_{segment} (lane, seq, rank, due_at, submitted_at, id, priority, digest, input)
             values (?1, ?2, ?3, ?4, ?4, ?5, 0, ?6, ?7)"
        );
        for batch in part.chunks(SUBMIT_BATCH) {
            database.write(|connection| {
                let now = job::now();
                let mut insert = connection.prepare_cached(&sql)?;
                for job in batch {
                    seq += 1;
                    let id = job.id.0.to_be_bytes();
                    insert.execute(params![job.lane, seq, job.rank, now, id, job.digest, job.input])?;
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Claims and commits by turns until all segments are read; returns how many jobs were committed.
pub(crate) fn drain(database: &mut Database, lanes: i32) -> Result<usize> {
    let (mut total, mut number) = (0, 0i64);
    for segment in 0..SEGMENTS {
        let commit = format!(
            "insert into done_{segment} (seq, finished_at, attempts, state, result) values (?1, ?2, 1, 2, ?3)"
        );
        for lane in 1..=lanes {
            loop {
                number += 1;
                let jobs = claim(database, segment, lane, number)?;
                if jobs.is_empty() {
                    break;
                }
                database.write(|connection| {
                    let now = job::now();
                    let held: Option<i64> = connection
                        .prepare_cached(
                            "select 1 from claims where worker = ?1 and number = ?2 and epoch = 1",
                        )?
                        .query_row(params![WORKER, number], |row| row.get(0))
                        .optional()?;
                    ensure!(held.is_some(), "a claim is not held");
                    let mut insert = connection.prepare_cached(&commit)?;
                    for job in &jobs {
                        insert.execute(params![job.id.number(), now, job.result()])?;
                    }
                    Ok(())
                })?;
                total += jobs.len();
            }
        }
    }
    Ok(total)
}

/// Takes the next range of a lane.
fn claim(database: &mut Database, segment: usize, lane: i32, number: i64) -> Result<Vec<Claimed>> {
    let sql = format!(
        "select seq, rank, input from events_{segment} where lane = ?1 and seq >= ?2 order by seq limit ?3"
    );
    database.write(|connection| {
        let next: i64 = connection
            .prepare_cached("select next from cursors where segment = ?1 and lane = ?2")?
            .query_row(params![segment as i64, lane], |row| row.get(0))
            .optional()?
            .unwrap_or(0);
        let mut statement = connection.prepare_cached(&sql)?;
        let jobs = statement
            .query_map(params![lane, next, CLAIM_BATCH as i64], |row| {
                Ok(Claimed {
                    id: Id(row.get::<_, i64>(0)? as u128),
                    lane,
                    rank: row.get(1)?,
                    epoch: 1,
                    rev: 0,
                    attempts: 1,
                    input: row.get(2)?,
                })
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        if let (Some(first), Some(last)) = (jobs.first(), jobs.last()) {
            let (first, last) = (first.id.number(), last.id.number());
            connection
                .prepare_cached("insert or replace into cursors (segment, lane, next) values (?1, ?2, ?3)")?
                .execute(params![segment as i64, lane, last + 1])?;
            connection
                .prepare_cached("insert into claims values (?1, ?2, ?3, ?4, ?5, ?6, 1)")?
                .execute(params![WORKER, number, segment as i64, lane, first, last])?;
        }
        Ok(jobs)
    })
}

/// Empties every segment, as rotation does once all its jobs are finished and past retention, and tells the time.
pub(crate) fn rotate_timed(database: &mut Database) -> Result<()> {
    let started = Instant::now();
    for segment in 0..SEGMENTS {
        database.write(|connection| {
            connection.execute_batch(&format!("delete from events_{segment}; delete from done_{segment}"))?;
            Ok(())
        })?;
    }
    eprintln!("   rotation of all segments: {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    Ok(())
}
