-- name: free_serial_keys
-- One job in line for each serial key that has one and a free slot: the keys to settle, a bounded number. Walks the
-- primary key of line from key to key.
with recursive keys as (
    (select serial_key, job from serial_waiting order by serial_key, serial_position limit 1)
    union all
    select n.serial_key, n.job from keys
    cross join lateral (select serial_key, job from serial_waiting where serial_waiting.serial_key > keys.serial_key order by serial_key, serial_position limit 1) n
)
select k.job from keys k join serial_keys s on s.id = k.serial_key
where (select count(*) from (select from serial_holders h where h.serial_key = s.id limit s.slots) held) < s.slots
limit 1000

-- name: stale_holders
-- Jobs that have a slot and should not: they ended, were set aside, or are gone. The last are forgotten at once.
with lost as (
    delete from serial_holders h where not exists (select from jobs j where j.id = h.job) returning h.serial_key
)
select j.id from serial_holders h join jobs j on j.id = h.job where j.state <> 0 or j.hold = 2
limit 1000

-- name: met_waits
-- Parked jobs that seem to have what they wait for, a bounded number: of the newest thousand with signals, and of the
-- newest thousand that have children. Walks the primary key of signals from inbox to inbox, and jobs_parent from parent
-- to parent, both backwards. Whether they have it is for waits.wake to say.
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
  and (select count(distinct s.name) from signals s
                where s.job = j.id and s.name = any(j.wait_names) and s.unreadable is null) >= j.wait_needs
union all
select j.id from jobs j
where j.id = any (array(select parent from parents)) and j.parked = 1 and j.state = 0 and j.wait_names is null and j.pending_children <= 0
