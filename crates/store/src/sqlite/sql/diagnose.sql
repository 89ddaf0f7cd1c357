-- Diagnose. Reads only.

-- name: journal_mode
-- Reads the journal mode of the file.
pragma journal_mode

-- name: oldest_ready
-- Reads the first ready job of each lane, and of each lane of suspects (negative numbers). Walks the primary keys of ready and jobs.
select q.name, k.name, l.version, j.due_at
from windlass_lanes l
join windlass_queues q on q.id = l.queue
join windlass_kinds k on k.id = l.kind
join windlass_jobs j on j.id in (
    (select r.job from windlass_ready r where r.lane = l.id order by r.rank limit 1),
    (select r.job from windlass_ready r where r.lane = -l.id order by r.rank limit 1))

-- name: suspects
-- Counts ready suspects, up to a cap. Walks the primary key of ready.
select count(*) from (select 1 from windlass_ready where lane < 0 limit ?1)

-- name: unhandled_failures
-- Counts failed jobs that are not in a merged branch, among the newest ?1. Walks jobs_unsuccessful backwards, then the primary keys of jobs
-- and branches.
select count(*)
from (select f.id from windlass_jobs f where f.unsuccessful_state = 2 order by f.id desc limit ?1) newest
join windlass_jobs j on j.id = newest.id
where not exists (select 1 from windlass_branches b where b.job = j.parent and b.number = j.branch and b.merged_at is not null)

-- name: awaited_branches
-- Reads branches that their job waits for, the first to be polled first, among a limited number. Walks branches_poll.
select b.job, b.name, b.merge_record, b.spawned, b.done, b.failed, b.cancelled, b.poll_at
from (select * from windlass_branches where poll_at is not null order by poll_at limit ?1) b
where b.watch is not null and not b.cancels_children

-- name: orphaned_branches
-- Reads branches whose job has ended while children have not, among a limited number of the newest. Walks primary keys.
select b.job, b.name, b.merge_record, b.spawned, b.done, b.failed, b.cancelled, b.poll_at
from (select * from windlass_branches order by job desc, number desc limit ?1) b
join windlass_jobs j on j.id = b.job and j.state > 0
where not b.cancels_children and b.spawned > b.done + b.failed + b.cancelled
