-- name: mark_unreadable
-- Sets a signal aside that an attempt could not read. Walks the primary key.
update windlass_signals set unreadable = ?3 where job = ?1 and number = ?2 and unreadable is null

-- name: consume
-- Takes a signal out of an inbox: a step that was shown it has made progress. Walks the primary key.
delete from windlass_signals where job = ?1 and number = ?2

-- name: count
-- How many signals wait in an inbox, and how many were set aside. Walks the primary key.
select count(*) - count(unreadable), count(unreadable) from windlass_signals where job = ?1

-- name: drop
-- Takes a signal out of an inbox for good, because someone says so. Walks the primary key.
delete from windlass_signals where job = ?1 and number = ?2

-- name: record_delivery
-- Notes that a signal was delivered, unless it was before.
insert into windlass_delivered_signals (job, name, dedup) values (?1, ?2, ?3) on conflict do nothing

-- name: recipient
-- The job that a signal is for: whether it has ended, what it waits for and until when, and the last number of its inbox. Walks the primary key.
select j.state, j.wait, j.last_signal, j.wait_until, j.pending_children,
       j.lane, j.priority, j.due_at, j.suspect, j.deadline_at, j.hold, j.serial_key, j.serial_position, j.parked,
       case when j.parent_rev is not null then j.parent end, j.parent_rev = -1, j.branch is not null or j.has_branches is not null
from windlass_jobs j where j.id = ?1

-- name: was_delivered
-- Whether a signal was delivered before. Walks the primary key.
select 1 from windlass_delivered_signals where job = ?1 and name = ?2 and dedup = ?3

-- name: awaited_names
-- The names of the signals in an inbox, but those that were set aside. Walks the primary key.
select name from windlass_signals where job = ?1 and unreadable is null

-- name: set_last_number
-- Notes the number of the last signal of a job.
update windlass_jobs set last_signal = ?2 where id = ?1

-- name: read
-- A signal in an inbox: its name, and whether it was set aside. Walks the primary key.
select name, unreadable is not null from windlass_signals where job = ?1 and number = ?2

-- name: deliver
-- Puts a signal into an inbox, behind the others.
insert into windlass_signals (job, number, name, at, codec, payload) values (?1, ?2, ?3, ?4, ?5, ?6)

-- name: restore
-- Puts a signal back that was set aside, where it stood. Walks the primary key.
update windlass_signals set unreadable = null where job = ?1 and number = ?2
