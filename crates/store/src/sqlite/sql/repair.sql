-- name: free_serial_keys
-- Keys with a free slot and someone in line. Jumps from key to key along the primary key of line.
with recursive waiting (serial_key) as (
    select min(serial_key) from windlass_serial_waiting
    union all
    select (select min(l.serial_key) from windlass_serial_waiting l where l.serial_key > w.serial_key) from waiting w where w.serial_key is not null
)
select w.serial_key from waiting w join windlass_serial_keys s on s.id = w.serial_key
where (select count(*) from windlass_serial_holders h where h.serial_key = s.id) < s.slots

-- name: stale_holders
-- Slots held by jobs that ended, were pruned, are set aside, or are parked and do not keep them.
select h.serial_key, h.job from windlass_serial_holders h
where not exists (select 1 from windlass_jobs j where j.id = h.job and j.state = 0 and j.serial_key = h.serial_key
                  and coalesce(j.hold, 0) <> 2 and (j.parked is null or j.keeps_slot))

-- name: met_waits
-- Parked jobs that have what they wait for: signals, found by jumping from inbox to inbox along the primary key of
-- signals, or children, of which jobs_stuck holds them. A bounded batch. The cross joins keep it from walking all jobs.
with recursive inboxes (job) as (
    select min(job) from windlass_signals
    union all
    select (select min(s.job) from windlass_signals s where s.job > i.job) from inboxes i where i.job is not null
),
met (job) as (
    select j.id from inboxes i cross join windlass_jobs j on j.id = i.job
    where j.parked = 1
      and (select count(*) from json_each(j.wait, '$.signals.names') n
           where exists (select 1 from windlass_signals s where s.job = j.id and s.name = n.value ->> 'name' and s.unreadable is null))
          >= j.wait ->> '$.signals.needs'
    union all
    select j.id from windlass_jobs j where j.parked = 2 and j.pending_children = 0
)
select j.id, j.lane, j.priority, j.due_at, j.suspect, j.deadline_at, j.hold, j.serial_key, j.serial_position, j.parked,
       case when j.parent_rev is not null then j.parent end, j.parent_rev = -1, j.branch is not null or j.has_branches is not null
from met m cross join windlass_jobs j on j.id = m.job
limit ?1
