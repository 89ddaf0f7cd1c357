-- What ends per minute and branch, and how long waits for signals took: appended at the end of every verb that ends jobs or waits, summed up by
-- Maintenance::roll_up, read by Inspect. PostgreSQL appends in the statements that end jobs and waits.

-- name: append_ended
-- Records what a transaction has ended in one lane, minute and branch.
insert into windlass_ended_batches
    (lane, minute, parent, branch, done, failed, cancelled, retried, first_start_at, last_end_at, times)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)

-- name: append_waits
-- Records how long jobs of one kind have waited for one signal.
insert into windlass_wait_batches (kind, signal, day, arrived, timed_out) values (?1, ?2, ?3, ?4, ?5)

-- name: has_rows
-- Whether a roll-up would find anything: recorded rows, minutes that began before ?1, hours that began before minute ?2, days before ?3.
-- Walks the primary key of ended_sums; reads all of signal_waits, which is short, if it finds nothing else.
select exists (select 1 from windlass_ended_batches) or exists (select 1 from windlass_wait_batches)
    or exists (select 1 from windlass_ended_sums where minutes = 1 and starts < ?1)
    or exists (select 1 from windlass_ended_sums where minutes = 60 and starts < ?2)
    or exists (select 1 from windlass_signal_waits where day < ?3)

-- name: read_ended
-- Reads recorded ends, at most ?1, in the order in which they were added.
select rowid, lane, minute, parent, branch, done, failed, cancelled, retried, first_start_at, last_end_at, times
from windlass_ended_batches order by rowid limit ?1

-- name: delete_ended
-- Deletes recorded ends up to row ?1.
delete from windlass_ended_batches where rowid <= ?1

-- name: read_minutes
-- Reads sums of minutes that began before ?1, at most ?2, the oldest first. Walks the primary key.
select minutes, starts, lane, done, failed, cancelled, retried, wait_times, run_times
from windlass_ended_sums where minutes = 1 and starts < ?1 order by starts, lane limit ?2

-- name: delete_sum
-- Deletes a sum of ends. Walks the primary key.
delete from windlass_ended_sums where minutes = ?1 and starts = ?2 and lane = ?3

-- name: read_sum
-- Reads a sum of ends. Walks the primary key.
select minutes, starts, lane, done, failed, cancelled, retried, wait_times, run_times
from windlass_ended_sums where minutes = ?1 and starts = ?2 and lane = ?3

-- name: write_sum
-- Writes a sum of ends. Walks the primary key.
insert or replace into windlass_ended_sums (minutes, starts, lane, done, failed, cancelled, retried, wait_times, run_times)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)

-- name: delete_hours
-- Deletes sums of hours that began before minute ?1. Walks the primary key.
delete from windlass_ended_sums where minutes = 60 and starts < ?1

-- name: read_branch_times
-- Reads the times of a branch. Walks the primary key.
select branch, first_start_at, last_end_at, wait_times, run_times from windlass_branch_times where job = ?1 and branch = ?2

-- name: write_branch_times
-- Writes the times of a branch, if it exists. Walks the primary keys of branches and branch_times.
insert or replace into windlass_branch_times (job, branch, first_start_at, last_end_at, wait_times, run_times)
select ?1, ?2, ?3, ?4, ?5, ?6 from windlass_branches b where b.job = ?1 and b.number = ?2

-- name: read_recorded_waits
-- Reads recorded waits, at most ?1, in the order in which they were added.
select rowid, kind, signal, day, arrived, timed_out from windlass_wait_batches order by rowid limit ?1

-- name: delete_recorded_waits
-- Deletes recorded waits up to row ?1.
delete from windlass_wait_batches where rowid <= ?1

-- name: kept_signals
-- Lists the signals of a kind that are kept apart. Walks the primary key.
select distinct signal from windlass_signal_waits where kind = ?1

-- name: read_waits
-- Reads a sum of waits. Walks the primary key.
select arrived, timed_out from windlass_signal_waits where kind = ?1 and signal = ?2 and day = ?3

-- name: write_waits
-- Writes a sum of waits. Walks the primary key.
insert or replace into windlass_signal_waits (kind, signal, day, arrived, timed_out) values (?1, ?2, ?3, ?4, ?5)

-- name: delete_waits
-- Deletes sums of waits of days before ?1. Reads the whole table, which is short.
delete from windlass_signal_waits where day < ?1

-- name: throughput
-- Reads the sums of minutes and hours from ?1 until before ?2. Walks the primary key.
select minutes, starts, lane, done, failed, cancelled, retried, wait_times, run_times
from windlass_ended_sums where minutes in (1, 60) and starts >= ?1 and starts < ?2

-- name: branch_times
-- Reads the times of the branches of a job. Walks the primary key.
select branch, first_start_at, last_end_at, wait_times, run_times from windlass_branch_times where job = ?1

-- name: recorded_of_job
-- Reads recorded ends of children in branches of a job. Walks the primary key of branches; reads all recorded ends, which are few.
select e.rowid, e.lane, e.minute, e.parent, e.branch, e.done, e.failed, e.cancelled, e.retried, e.first_start_at, e.last_end_at, e.times
from windlass_ended_batches e join windlass_branches b on b.job = e.parent and b.number = e.branch
where e.parent = ?1

-- name: signal_waits
-- Reads the sums of waits of all kinds. Reads the whole table, which is short.
select k.name, w.signal, w.day, w.arrived, w.timed_out
from windlass_signal_waits w join windlass_kinds k on k.id = w.kind order by k.name, w.signal, w.day

-- name: signal_waits_of
-- The same of one kind. Walks the unique index of names and the primary key of signal_waits.
select k.name, w.signal, w.day, w.arrived, w.timed_out
from windlass_kinds k join windlass_signal_waits w on w.kind = k.id where k.name = ?1 order by w.signal, w.day

-- name: recorded_waits
-- Reads all recorded waits, in the order in which they were added.
select k.name, w.signal, w.day, w.arrived, w.timed_out
from windlass_wait_batches w join windlass_kinds k on k.id = w.kind order by w.rowid
