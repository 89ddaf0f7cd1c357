-- All verbs that make jobs ready or end them, as far as serial keys go. Writes serial_keys, serial_holders (jobs that have a slot) and
-- serial_waiting (jobs that wait for one). Free slots are filled at the end of a transaction. PostgreSQL locks the keys first, by id.

-- name: has_slot
-- Whether a job has a slot of its key. Walks the primary key.
select exists (select 1 from windlass_serial_holders where serial_key = ?1 and job = ?2)

-- name: start_waiting
-- Adds a job to those that wait for its key, at its position.
insert into windlass_serial_waiting (serial_key, serial_position, job) values (?1, ?2, ?3) on conflict do nothing

-- name: stop_waiting
-- Removes a job from those that wait for its key. Walks the primary key.
delete from windlass_serial_waiting where serial_key = ?1 and serial_position = ?2 and job = ?3

-- name: first_waiting
-- Reads the first jobs that wait for a key, as many as it has free slots, with their placement. Walks the primary keys of
-- serial_holders and serial_waiting.
select w.job, j.lane, j.priority, j.due_at, j.suspect, j.deadline_at, j.hold, j.serial_key, w.serial_position, j.parked,
       case when j.parent_rev is not null then j.parent end, j.parent_rev = -1, j.branch is not null or j.has_branches is not null
from windlass_serial_waiting w join windlass_jobs j on j.id = w.job
where w.serial_key = ?1 and j.state = 0
order by w.serial_position, w.job
limit (select max(s.slots - (select count(*) from windlass_serial_holders h where h.serial_key = s.id), 0)
       from windlass_serial_keys s where s.id = ?1)

-- name: take_slot
-- Gives a slot of a key to a job.
insert into windlass_serial_holders (serial_key, job) values (?1, ?2) on conflict do nothing

-- name: free_slot
-- Frees the slot that a job has. Walks the primary key.
delete from windlass_serial_holders where serial_key = ?1 and job = ?2

-- name: read
-- Reads the number of a serial key. Walks the unique index of keys.
select id from windlass_serial_keys where key = ?1

-- name: add
-- Adds a serial key unless it exists, sets its slots unless they are null, and returns its number. A new key has one slot. Walks the
-- unique index of keys.
insert into windlass_serial_keys (key, slots) values (?1, coalesce(?2, 1))
on conflict (key) do update set slots = coalesce(?2, slots)
returning id
