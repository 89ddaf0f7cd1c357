-- name: first_waiting
-- A job in the line of a serial key, if there is one: its key is to be settled.
select job from serial_waiting where serial_key = $1 order by serial_position, job limit 1

-- name: set_slots
-- How many jobs of a serial key run at once.
insert into serial_keys (key, slots) values ($1, $2) on conflict (key) do update set slots = excluded.slots returning id

-- name: enter
-- Lets live jobs that are due, locked and not held enter: the ready set, or the line of their serial key if they have
-- none of its slots. Gates move for what became ready. Answers whether any stands in a line (then its keys are to be
-- settled).
with who as materialized (
    select j.id, j.lane, j.suspect, j.serial_key, j.serial_position, j.due_at + j.priority * $2::int8 as rank,
           j.serial_key is null
           or (select true from serial_holders h where h.serial_key = j.serial_key and h.job = j.id) is not null as free
    from jobs j where j.id = any($1::uuid[]) and j.state = 0 and j.hold is null
), to_line as (
    insert into serial_waiting (serial_key, serial_position, job) select serial_key, serial_position, id from who where not free on conflict do nothing
), to_ready as (
    insert into ready (lane, rank, job)
    select case when suspect then -lane else lane end, rank, id from who where free on conflict do nothing
), to_gates as (
    insert into gates (queue, writer, version)
    select l.queue, $3::int8, (random() * 1e12)::int8 from lanes l where l.id in (select lane from who where free)
    group by l.queue
    on conflict (queue, writer) do update set version = gates.version + 1
)
select exists (select from who where not free)

-- name: read
-- The numbers of serial keys, and their slots.
select key, id, slots from serial_keys where key = any($1::text[])

-- name: add
-- Makes serial keys that are not there. Sorted, so that two batches cannot wait for each other.
insert into serial_keys (key) select n from unnest($1::text[]) as n order by n collate "C" on conflict do nothing

-- name: lock_keys
-- Locks serial keys, by id.
select id from serial_keys where id = any($1::int8[]) order by id for update

-- name: leave
-- Takes jobs out of their key's slots and line that have ended, were set aside, or are parked or wait for another attempt
-- without keeping their slot. Harmless for all others. Needs serial.lock_keys_of_jobs before.
with who as materialized (
    select j.id, j.serial_key, j.serial_position,
           j.state <> 0 or coalesce(j.hold, 0) = 2 as out,
           not coalesce(j.keeps_slot, false)
           and case when j.parked is not null then j.parked = 1
               else exists (select from timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0) end as wait_names
    from jobs j where j.id = any($1::uuid[]) and j.serial_key is not null
), unlined as (
    delete from serial_waiting l using who w where w.out and l.serial_key = w.serial_key and l.serial_position = w.serial_position and l.job = w.id
)
delete from serial_holders h using who w where (w.out or w.wait_names) and h.serial_key = w.serial_key and h.job = w.id

-- name: lock_keys_of_jobs
-- Locks the serial keys of some jobs, by id. Whoever moves jobs of a key between its line, its slots and the ready set
-- does so in later statements, which see all that the holder of the lock before did.
select s.id from serial_keys s
where s.id = any (array(select distinct j.serial_key from jobs j where j.id = any($1::uuid[]) and j.serial_key is not null))
order by s.id
for update

-- name: promote
-- Hands free slots of the keys of some jobs to the first in line: they enter the ready set, and its gates move. Walks
-- the primary keys of line and holders. Needs serial.lock_keys_of_jobs before. Answers how many entered.
with free as materialized (
    select s.id, s.slots - (select count(*) from serial_holders h where h.serial_key = s.id) as n
    from serial_keys s
    where s.id = any (array(select distinct j.serial_key from jobs j where j.id = any($1::uuid[]) and j.serial_key is not null))
), gone as (
    delete from serial_waiting where ctid = any (array(
        select h.ctid from free
        cross join lateral (
            select l.ctid from serial_waiting l where l.serial_key = free.id order by l.serial_position, l.job limit greatest(free.n, 0)
        ) h
    ))
    returning serial_key, job
), held as (
    insert into serial_holders (serial_key, job) select serial_key, job from gone
), who as materialized (
    select j.id, j.lane, j.suspect, j.due_at + j.priority * $2::int8 as rank from gone join jobs j on j.id = gone.job
), to_ready as (
    insert into ready (lane, rank, job) select case when suspect then -lane else lane end, rank, id from who
), to_gates as (
    insert into gates (queue, writer, version)
    select l.queue, $3::int8, (random() * 1e12)::int8 from lanes l where l.id in (select lane from who)
    group by l.queue
    on conflict (queue, writer) do update set version = gates.version + 1
)
select count(*) from who

-- name: change_slots
-- Sets the slots of serial keys that have others; locked by id before. Answers which changed.
update serial_keys s set slots = n.slots from unnest($1::int8[], $2::int4[]) as n (id, slots)
where s.id = n.id and s.slots <> n.slots
returning s.id
