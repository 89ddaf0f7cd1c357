-- Maintenance::fire_timers: fires due timers, one by one. Reads and deletes timers, writes jobs and ready. PostgreSQL takes a batch of timers,
-- skipping those that another process fires, and then locks their jobs by id.

-- name: next
-- Reads when the next timer is due, when the next tick is, and whether jobs wait to be admitted. Walks the primary keys of timers and
-- arrivals, and schedules_next.
select (select min(due_at) from windlass_timers),
       (select min(next_at) from windlass_schedules where next_at is not null and paused_at is null),
       exists (select 1 from windlass_arrivals)

-- name: read_due
-- Reads due timers, at most ?2, with the placement of their jobs (of a job that does not exist: state 1 and zeros). Walks the primary
-- key of timers, then of jobs.
select t.due_at, t.job, t.purpose, coalesce(j.state, 1), coalesce(j.lane, 0), coalesce(j.priority, 0),
       coalesce(j.due_at, 0), coalesce(j.suspect, 0), j.deadline_at, j.hold, j.serial_key, j.serial_position, j.parked,
       case when j.parent_rev is not null then j.parent end, j.parent_rev = -1, j.branch is not null or j.has_branches is not null
from windlass_timers t left join windlass_jobs j on j.id = t.job
where t.due_at <= ?1
order by t.due_at, t.job, t.purpose
limit ?2

-- name: add
-- Sets a timer.
insert into windlass_timers (due_at, job, purpose) values (?1, ?2, ?3)

-- name: remove
-- Deletes a timer. Walks the primary key.
delete from windlass_timers where due_at = ?1 and job = ?2 and purpose = ?3

-- name: remove_ready
-- Removes a job from the ready set, wherever its rank places it. Walks the primary key of ready.
delete from windlass_ready where lane = ?1 and rank = ?2 and job = ?3

-- name: expire
-- Fails a job whose deadline has passed, and raises its epoch: a running attempt is fenced. Walks the primary key of jobs.
update windlass_jobs
set state = 2, unsuccessful_state = 2, epoch = epoch + 1, reason = ?2, failure = ?3, finished_at = ?4, hold = null, parked = null,
    error_class = {{common.error_class(?3)}}
where id = ?1 and state = 0
