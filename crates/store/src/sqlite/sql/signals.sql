-- Execution::signal and commit, and Control::act_on_jobs as far as it drops or restores signals. Writes signals (inboxes) and
-- delivered_signals. The number of a signal comes from the job's row; PostgreSQL draws it from a sequence.

-- name: recipient
-- Reads the job that a signal is for: its state, what it waits for and until when, the last number of its inbox, and its placement.
-- Walks the primary key of jobs.
select j.state, j.wait, j.last_signal, j.wait_until, j.pending_children, {{common.placement(j.)}}, j.parked_at
from windlass_jobs j where j.id = ?1

-- name: count
-- Counts the signals in an inbox: those that can be read, and unreadable ones. Walks the primary key.
select count(*) - count(unreadable), count(unreadable) from windlass_signals where job = ?1

-- name: was_delivered
-- Whether a signal was delivered before. Walks the primary key of delivered_signals.
select 1 from windlass_delivered_signals where job = ?1 and name = ?2 and dedup = ?3

-- name: record_delivery
-- Records that a signal was delivered, unless it was before.
insert into windlass_delivered_signals (job, name, dedup) values (?1, ?2, ?3) on conflict do nothing

-- name: deliver
-- Adds a signal to an inbox.
insert into windlass_signals (job, number, name, at, codec, payload) values (?1, ?2, ?3, ?4, ?5, ?6)

-- name: set_last_number
-- Writes the number of the last signal of a job. Walks the primary key of jobs.
update windlass_jobs set last_signal = ?2 where id = ?1

-- name: inbox_names
-- Reads the names of the signals in an inbox, in order, without unreadable ones. Walks the primary key.
select name from windlass_signals where job = ?1 and unreadable is null order by number

-- name: consume
-- Deletes a signal that a step received and consumed. Walks the primary key.
delete from windlass_signals where job = ?1 and number = ?2

-- name: mark_unreadable
-- Marks a signal that an attempt could not decode. Walks the primary key.
update windlass_signals set unreadable = ?3 where job = ?1 and number = ?2 and unreadable is null

-- name: read
-- Reads the name of a signal, and whether it is unreadable. Walks the primary key.
select name, unreadable is not null from windlass_signals where job = ?1 and number = ?2

-- name: drop
-- Deletes a signal because someone asked for it. Walks the primary key.
delete from windlass_signals where job = ?1 and number = ?2

-- name: restore
-- Makes an unreadable signal readable again; it keeps its number, and so its position. Walks the primary key.
update windlass_signals set unreadable = null where job = ?1 and number = ?2
