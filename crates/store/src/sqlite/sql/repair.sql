-- Maintenance::repair: finds what should not exist, without the write lock: free serial slots with jobs waiting, slots held by the wrong jobs,
-- and parked jobs whose wait is met.

-- name: free_serial_keys
-- Lists serial keys that have a free slot and a waiting job. Jumps from key to key along the primary key of serial_waiting.
with recursive waiting (serial_key) as (
    select min(serial_key) from windlass_serial_waiting
    union all
    select (select min(w.serial_key) from windlass_serial_waiting w where w.serial_key > waiting.serial_key)
    from waiting where waiting.serial_key is not null
)
select waiting.serial_key from waiting join windlass_serial_keys s on s.id = waiting.serial_key
where (select count(*) from windlass_serial_holders h where h.serial_key = s.id) < s.slots

-- name: stale_holders
-- Lists serial slots that are held by jobs which have ended, were pruned, are held, or are parked without keeping their slot. Reads all
-- slots, and the primary key of jobs for each.
select h.serial_key, h.job from windlass_serial_holders h
where not exists (select 1 from windlass_jobs j where j.id = h.job and j.state = 0 and j.serial_key = h.serial_key
                  and coalesce(j.hold, 0) <> 2 and (j.parked is null or j.keeps_slot))

-- name: met_waits
-- Lists parked jobs that have what they wait for, at most ?1: signals, found by jumping from inbox to inbox along the primary key of
-- signals, or children, by the index jobs_stuck. The cross joins keep SQLite from walking all jobs.
with recursive inboxes (job) as (
    select min(job) from windlass_signals
    union all
    select (select min(s.job) from windlass_signals s where s.job > i.job) from inboxes i where i.job is not null
),
met (job) as (
    select j.id from inboxes i cross join windlass_jobs j on j.id = i.job
    where j.parked = 1
      and case when json_valid(j.wait) then
              (select count(*) from json_each(j.wait, '$.signals.names') n
               where exists (select 1 from windlass_signals s where s.job = j.id and s.name = n.value ->> 'name' and s.unreadable is null))
              >= j.wait ->> '$.signals.needs'
          end
    union all
    select j.id from windlass_jobs j where j.parked = 2 and j.pending_children = 0
)
select j.id, {{common.placement(j.)}}
from met m cross join windlass_jobs j on j.id = m.job
limit ?1
