-- The number of jobs in each state, per lane: written at the end of every verb that adds, moves or deletes jobs, and read by Inspect. One row per
-- lane, since there is one writer at a time; PostgreSQL has one per lane and connection.

-- name: add
-- Adds differences to the counts of a lane. Walks the primary key.
insert into windlass_job_counts (lane, live, scheduled, waiting, done, failed, cancelled) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
on conflict (lane) do update
set live = live + ?2, scheduled = scheduled + ?3, waiting = waiting + ?4, done = done + ?5, failed = failed + ?6,
    cancelled = cancelled + ?7

-- name: claimed_from
-- Reads the lane of a job, and when it was due. Walks the primary key.
select lane, due_at from windlass_jobs where id = ?1

-- name: read
-- Reads the counts of all lanes. Reads the whole table, which is short.
select lane, live, scheduled, waiting, done, failed, cancelled from windlass_job_counts

-- name: recount
-- Counts the jobs of all lanes by their rows, in the columns of read. Reads all jobs: for tests, and for people who doubt the counts.
select j.lane, sum(j.state = 0),
       sum(j.state = 0 and j.parked is null
           and exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0)),
       sum(j.state = 0 and j.parked is not null), sum(j.state = 1), sum(j.state = 2), sum(j.state = 3)
from windlass_jobs j group by j.lane
