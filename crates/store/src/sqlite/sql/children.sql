-- name: unsuccessful_children
-- Children of a branch that failed or were cancelled (?6), in the order of their ids. Walks jobs_unsuccessful from the first child of
-- the branch on: what goes wrong is little, and the rest of a large branch is not looked at.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       coalesce(j.hold, 0) = 2
       or exists (select 1 from windlass_ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?1 and r.job = j.id)
       or exists (select 1 from windlass_serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id),
       exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0),
       j.parked is not null, j.stage,
       j.branch, j.spawn, j.item, coalesce(j.item_count, 1), coalesce(j.items_counted, 0), j.failure, j.output_codec,
       case when j.external_payloads & 2 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 2) else j.output end,
       j.codec,
       case when j.external_payloads & 1 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 1) else j.input end,
       j.data_codec,
       case when j.external_payloads & 4 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 4) else j.data end
from windlass_jobs j
where j.unsuccessful_state = ?6 and j.id > ?4 and +j.parent = ?2 and +j.branch = ?3
  and j.id >= (select min(c.id) from windlass_jobs c where c.parent = ?2 and c.branch = ?3 and c.id > ?4)
order by j.id
limit ?5

-- name: branches
-- The branches of a job, by number. Walks the primary key.
select number, name, spawns, cursor_codec, cursor, sealed, merged_at, cancels_children, spawned, started, done, failed, cancelled, watch,
       merge_record, opened_at, poll, poll_at
from windlass_branches where job = ?1 order by number

-- name: children
-- Jobs that one job submitted, in one of its branches (?5) or in none, oldest first. Walks jobs_parent.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       coalesce(j.hold, 0) = 2
       or exists (select 1 from windlass_ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?1 and r.job = j.id)
       or exists (select 1 from windlass_serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id),
       exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0),
       j.parked is not null, j.stage
from windlass_jobs j
where j.parent = ?2 and j.branch is ?5 and j.id > ?3
order by j.id
limit ?4

-- name: child_ends
-- The children that one change of a job submitted, in the order of their ids, and how they ended. Walks jobs_parent.
select j.id, j.lane, j.key, j.state, j.reason, j.failure, j.output_codec,
       case when j.external_payloads & 2 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 2) else j.output end
from windlass_jobs j
where j.parent = ?1 and j.branch is null and j.parent_rev = ?2 and j.id > ?3
order by j.id
limit ?4

-- name: branch_children
-- Children of a branch in the order of their ids: all, or only those that live or do not (?6). Walks jobs_parent.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       coalesce(j.hold, 0) = 2
       or exists (select 1 from windlass_ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?1 and r.job = j.id)
       or exists (select 1 from windlass_serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id),
       exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0),
       j.parked is not null, j.stage,
       j.branch, j.spawn, j.item, coalesce(j.item_count, 1), coalesce(j.items_counted, 0), j.failure, j.output_codec,
       case when j.external_payloads & 2 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 2) else j.output end,
       j.codec,
       case when j.external_payloads & 1 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 1) else j.input end,
       j.data_codec,
       case when j.external_payloads & 4 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 4) else j.data end
from windlass_jobs j
where j.parent = ?2 and j.branch = ?3 and j.id > ?4 and (?6 is null or (j.state = 0) = ?6)
order by j.id
limit ?5

-- name: branch_numbers
-- The branches that the children of a job are in, found by jumping from one to the next along jobs_parent. Their parent may be
-- gone, and its branches with it.
with recursive numbers (number) as (
    select min(branch) from windlass_jobs where parent = ?1 and branch is not null
    union all
    select (select min(j.branch) from windlass_jobs j where j.parent = ?1 and j.branch > n.number)
    from numbers n where n.number is not null
)
select number from numbers where number is not null

-- name: child_place
-- Where a job stands in a branch of its parent. Walks primary keys.
select j.branch, b.name, b.spawns, j.spawn, j.item, coalesce(j.item_count, 1)
from windlass_jobs j join windlass_branches b on b.job = j.parent and b.number = j.branch
where j.id = ?1
