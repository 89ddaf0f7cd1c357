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
           where exists (select 1 from windlass_signals s where s.job = j.id and s.name = n.value ->> 'name' and s.aside is null))
          >= j.wait ->> '$.signals.needs'
    union all
    select j.id from windlass_jobs j where j.parked = 2 and j.pending = 0
)
select j.id, j.lane, j.priority, j.due_at, j.suspect, j.deadline_at, j.hold, j.serial, j.place, j.parked,
       case when j.round is not null then j.parent end, j.round = -1, j.branch is not null or j.branched is not null
from met m cross join windlass_jobs j on j.id = m.job
limit ?1
