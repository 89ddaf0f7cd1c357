-- All verbs that make jobs ready or end them, as far as serial keys go. Writes serial_keys, serial_holders (jobs that have a slot),
-- serial_waiting (jobs that wait for one), ready and gates. Locks serial keys by id, after jobs; who moves jobs of a key between its slots, its
-- waiting jobs and the ready set does so in later statements, which see all that earlier holders of the lock did. Free slots are filled at
-- the end of a transaction.

-- name: lock_keys_of_jobs
-- Locks the serial keys of some jobs, by id. Walks the primary keys of jobs and serial_keys.
select s.id from serial_keys s
where s.id = any {{keys_of_jobs}}
order by s.id
for update

-- fragment: keys_of_jobs
-- The serial keys of the jobs $1.
(array(select distinct j.serial_key from jobs j where j.id = any($1::uuid[]) and j.serial_key is not null))

-- fragment: has_slot
-- Whether a job needs no slot of a serial key, or has one. Walks the primary key of serial_holders.
j.serial_key is null
or (select true from serial_holders h where h.serial_key = j.serial_key and h.job = j.id) is not null

-- name: enter
-- Makes live jobs ready that are due, locked and not held: adds them to the ready set and moves its gates, or to those that wait for their
-- serial key if they have no slot of it. Returns whether any waits (then the slots of its key must be filled). Walks the primary keys of
-- jobs and serial_holders.
with entering as materialized (
    select j.id, j.lane, j.suspect, j.serial_key, j.serial_position, j.due_at + j.priority * $2::int8 as rank, {{has_slot}} as has_slot
    from jobs j where j.id = any($1::uuid[]) and j.state = 0 and j.hold is null
), to_waiting as (
    insert into serial_waiting (serial_key, serial_position, job)
    select serial_key, serial_position, id from entering where not has_slot on conflict do nothing
), to_ready as (
    insert into ready (lane, rank, job) select {{common.ready_lane}}, rank, id from entering where has_slot on conflict do nothing
), to_gates as (
    {{gates.bump_lanes($3, select lane from entering where has_slot)}}
)
select exists (select from entering where not has_slot)

-- name: leave
-- Gives up the slots and positions of jobs that have ended or are held, and the slots of jobs that are parked or wait for another attempt
-- without keeping theirs. Leaves all other jobs as they are. The serial keys are locked. Walks primary keys.
with leaving as materialized (
    select j.id, j.serial_key, j.serial_position,
           j.state <> 0 or coalesce(j.hold, 0) = 2 as is_out,
           not coalesce(j.keeps_slot, false)
           and case when j.parked is not null then j.parked = 1
               else exists (select from timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0) end as is_pausing
    from jobs j where j.id = any($1::uuid[]) and j.serial_key is not null
), stopped_waiting as (
    delete from serial_waiting w using leaving l
    where l.is_out and w.serial_key = l.serial_key and w.serial_position = l.serial_position and w.job = l.id
)
delete from serial_holders h using leaving l where (l.is_out or l.is_pausing) and h.serial_key = l.serial_key and h.job = l.id

-- name: fill_slots
-- Gives the free slots of the serial keys of some jobs to the first jobs that wait for them: adds these to the ready set and moves its gates.
-- Returns how many. The serial keys are locked. Walks the primary keys of serial_waiting, serial_holders and jobs.
with free as materialized (
    select s.id, s.slots - (select count(*) from serial_holders h where h.serial_key = s.id) as slots
    from serial_keys s
    where s.id = any {{keys_of_jobs}}
), stopped_waiting as (
    delete from serial_waiting where ctid = any (array(
        select f.ctid from free
        cross join lateral (
            select w.ctid from serial_waiting w where w.serial_key = free.id order by w.serial_position, w.job limit greatest(free.slots, 0)
        ) f
    ))
    returning serial_key, job
), held as (
    insert into serial_holders (serial_key, job) select serial_key, job from stopped_waiting
), entering as materialized (
    select j.id, j.lane, j.suspect, j.due_at + j.priority * $2::int8 as rank from stopped_waiting s join jobs j on j.id = s.job
), to_ready as (
    insert into ready (lane, rank, job) select {{common.ready_lane}}, rank, id from entering
), to_gates as (
    {{gates.bump_lanes($3, select lane from entering)}}
)
select count(*) from entering

-- name: first_waiting
-- Reads the first job that waits for a serial key, if there is one. Walks the primary key.
select job from serial_waiting where serial_key = $1 order by serial_position, job limit 1

-- name: read
-- Reads the numbers and slots of serial keys. Walks the unique index of keys.
select key, id, slots from serial_keys where key = any($1::text[])

-- name: add
-- Adds serial keys unless they exist. Sorted, so that two batches do not wait for each other.
insert into serial_keys (key) select n from unnest($1::text[]) as n order by n collate "C" on conflict do nothing

-- name: lock_keys
-- Locks serial keys, by id. Walks the primary key.
select id from serial_keys where id = any($1::int8[]) order by id for update

-- name: change_slots
-- Sets the slots of serial keys, which are locked, where they differ, and returns which. Walks the primary key.
update serial_keys s set slots = n.slots from unnest($1::int8[], $2::int4[]) as n (id, slots)
where s.id = n.id and s.slots <> n.slots
returning s.id

-- name: set_slots
-- Sets the slots of a serial key, and adds it if needed. Walks the unique index of keys.
insert into serial_keys (key, slots) values ($1, $2) on conflict (key) do update set slots = excluded.slots returning id
