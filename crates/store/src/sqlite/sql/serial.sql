-- name: read
-- The number of a serial key that is there.
select id from windlass_serial_keys where key = ?1

-- name: first
-- The first in line of a key, as many as it has free slots. Walks the primary keys of holders and line.
select l.job, j.lane, j.priority, j.due_at, j.suspect, j.deadline_at, j.hold, j.serial_key, l.serial_position, j.parked,
       case when j.parent_rev is not null then j.parent end, j.parent_rev = -1, j.branch is not null or j.has_branches is not null
from windlass_serial_waiting l join windlass_jobs j on j.id = l.job
where l.serial_key = ?1 and j.state = 0
order by l.serial_position, l.job
limit (select max(s.slots - (select count(*) from windlass_serial_holders h where h.serial_key = s.id), 0) from windlass_serial_keys s where s.id = ?1)

-- name: free_slot
-- Frees the slot that a job has. Walks the primary key.
delete from windlass_serial_holders where serial_key = ?1 and job = ?2

-- name: has_slot
-- Whether a job has one of the slots of its key. Walks the primary key.
select exists (select 1 from windlass_serial_holders where serial_key = ?1 and job = ?2)

-- name: take_slot
-- Gives a slot of a key to a job.
insert into windlass_serial_holders (serial_key, job) values (?1, ?2) on conflict do nothing

-- name: add
-- The number of a serial key, made if it is new. Slots that are null are left alone; a new key has one.
insert into windlass_serial_keys (key, slots) values (?1, coalesce(?2, 1))
on conflict (key) do update set slots = coalesce(?2, slots)
returning id

-- name: stop_waiting
-- Takes a job out of the line of its key. Walks the primary key.
delete from windlass_serial_waiting where serial_key = ?1 and serial_position = ?2 and job = ?3

-- name: start_waiting
-- Puts a job into the line of its key, at its place.
insert into windlass_serial_waiting (serial_key, serial_position, job) values (?1, ?2, ?3) on conflict do nothing
