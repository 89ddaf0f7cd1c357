-- Maintenance::repair: finds what should not exist: free serial slots with jobs waiting, slots held by the wrong jobs, and parked jobs whose wait is
-- met. Locks nothing; what is found is settled or woken by the routines of serial.sql and waits.wake.

-- name: free_serial_keys
-- Lists one waiting job of each serial key that has a free slot, at most 1,000. Jumps from key to key along the primary key of
-- serial_waiting.
with recursive waiting as (
    (select serial_key, job from serial_waiting order by serial_key, serial_position limit 1)
    union all
    select n.serial_key, n.job from waiting
    cross join lateral (
        select serial_key, job from serial_waiting
        where serial_waiting.serial_key > waiting.serial_key order by serial_key, serial_position limit 1
    ) n
)
select w.job from waiting w join serial_keys s on s.id = w.serial_key
where (select count(*) from (select from serial_holders h where h.serial_key = s.id limit s.slots) held) < s.slots
limit 1000

-- name: stale_holders
-- Lists jobs that have a serial slot although they have ended or are held, at most 1,000; deletes the slots of jobs that do not exist. Reads
-- all slots, and the primary key of jobs for each.
with deleted as (
    delete from serial_holders h where not exists (select from jobs j where j.id = h.job) returning h.serial_key
)
select j.id from serial_holders h join jobs j on j.id = h.job where j.state <> 0 or j.hold = 2
limit 1000

-- name: met_waits
-- Lists parked jobs that seem to have what they wait for: of the newest thousand with signals, and of the newest thousand with children.
-- waits.wake decides. Jumps from inbox to inbox along the primary key of signals, and from parent to parent along jobs_parent, both
-- backwards.
with recursive inboxes as (
    (select job, 1 as n from signals order by job desc limit 1)
    union all
    select s.job, i.n + 1 from inboxes i
    cross join lateral (select job from signals where signals.job < i.job order by job desc limit 1) s
    where i.n < 1000
), parents as (
    (select parent, 1 as n from jobs where parent is not null and branch is null order by parent desc limit 1)
    union all
    select c.parent, p.n + 1 from parents p
    cross join lateral (
        select j.parent from jobs j where j.parent < p.parent and j.parent is not null and j.branch is null order by j.parent desc limit 1
    ) c
    where p.n < 1000
)
select j.id from jobs j
where j.id = any (array(select job from inboxes)) and j.parked = 1 and j.state = 0
  and {{waits.awaited_signals}} >= j.wait_needs
union all
select j.id from jobs j
where j.id = any (array(select parent from parents)) and j.parked = 1 and j.state = 0 and j.wait_names is null and j.pending_children <= 0
