-- name: add_attempt
-- Keeps a failed attempt.
insert into windlass_attempts (job, epoch, worker, started_at, ended_at, failure) values (?1, ?2, ?3, ?4, ?5, ?6)

-- name: count_child
-- So many more (or fewer) children of a job have not ended: those of round ?3, or of the round of child ?4. They count only
-- while the job is in the stage that waits for them. Walks the primary key.
update windlass_jobs set pending_children = pending_children + ?2
where id = ?1 and stage_rev = coalesce(?3, (select c.parent_rev from windlass_jobs c where c.id = ?4))
returning pending_children, wait, lane, priority, due_at, suspect, deadline_at, hold, serial_key, serial_position, parked,
          case when parent_rev is not null then parent end, parent_rev = -1, branch is not null or has_branches is not null

-- name: done
-- Ends a job well, if epoch and rev are those of the change and nothing hangs on the job (or ?10). Whoever
-- commits counts for its branch (?13). Walks the primary key.
update windlass_jobs
set state = 1, rev = rev + 1, rev_epoch = epoch, rev_claim = ?14, worker = ?4, started_at = ?5, finished_at = ?6,
    output_codec = ?7, output = ?8, external_payloads = case when ?9 then coalesce(external_payloads, 0) | 2 else external_payloads end, hold = null,
    has_undo = coalesce(?11, has_undo), unwind = coalesce(?12, unwind)
where id = ?1 and epoch = ?2 and rev = ?3 and state = 0
  and (?10 or (hold is null and serial_key is null and parent_rev is null and has_branches is null and (branch is null or ?13)))

-- name: failed
-- Ends a job badly or by its own wish, if epoch and rev are those of the change and nothing hangs on the job (or ?11).
-- Whoever commits counts for its branch (?14). Walks the primary key.
update windlass_jobs
set state = ?7, unsuccessful_state = ?7, rev = rev + 1, rev_epoch = epoch, rev_claim = ?15, worker = ?4, started_at = ?5, finished_at = ?6,
    reason = ?8, failure = ?9, attempts = attempts + ?10, hold = null,
    has_undo = coalesce(?12, has_undo), unwind = coalesce(?13, unwind)
where id = ?1 and epoch = ?2 and rev = ?3 and state = 0
  and (?11 or (hold is null and serial_key is null and parent_rev is null and has_branches is null and (branch is null or ?14)))

-- name: drop_external_data
-- Forgets large data of a machine, whose new data is in its row. Walks the primary key.
delete from windlass_payloads where job = ?1 and part = 4

-- name: next
-- Writes a step after which the next follows under the same claim, if epoch and rev are those of the change and the job
-- is not held and leaves no large data behind (or ?11). Its counters start anew, unless it is but a part of an attempt (?6 is null). Walks the primary key.
update windlass_jobs
set rev = rev + 1, rev_epoch = epoch, rev_claim = ?14, worker = ?4, started_at = ?5,
    attempts = case when ?6 is null then attempts when ?6 then attempts + 1 else 0 end,
    retry_counts = case when ?6 is null then retry_counts end, worker_deaths = 0, solo_crashes = 0, suspect = 0,
    wait = case when ?6 is null then wait end, wait_until = case when ?6 is null then wait_until end,
    stage_rev = case when ?7 is null then stage_rev else rev + 1 end,
    pending_children = case when ?7 is null or stage_rev = rev + 1 then pending_children else 0 end, steps_since_wait = steps_since_wait + 1, stage = coalesce(?7, stage), data_codec = case when ?7 is null then data_codec else ?8 end,
    data = case when ?7 is null then data else ?9 end,
    external_payloads = case when ?7 is null then external_payloads when ?10 then coalesce(external_payloads, 0) | 4 else nullif(external_payloads & 3, 0) end,
    has_undo = coalesce(?12, has_undo), unwind = coalesce(?13, unwind)
where id = ?1 and epoch = ?2 and rev = ?3 and state = 0
  and (?11 or (hold is null and (?7 is null or ?10 or coalesce(external_payloads, 0) & 4 = 0)))

-- name: retry
-- Puts a job back for another attempt, if epoch and rev are those of the change: its epoch is raised.
update windlass_jobs
set rev = rev + 1, rev_epoch = epoch, rev_claim = ?11, epoch = epoch + 1, worker = ?4, started_at = ?5, due_at = ?6, retry_counts = ?7,
    failure = coalesce(?8, failure), attempts = attempts + 1, suspect = 0,
    has_undo = coalesce(?9, has_undo), unwind = coalesce(?10, unwind)
where id = ?1 and epoch = ?2 and rev = ?3 and state = 0
returning lane, priority, due_at, suspect, deadline_at, hold, serial_key, serial_position, parked,
          case when parent_rev is not null then parent end, parent_rev = -1, branch is not null or has_branches is not null, keeps_slot

-- name: start_children
-- A job is about to go on to a stage (?2 is the revision that leads to it) whose children are put in first: what it waited
-- for before is waited for no longer. Walks the primary key.
update windlass_jobs set stage_rev = ?2, pending_children = 0 where id = ?1

-- name: find_unapplied
-- Why a change was not written: whether it was before (then this claim wrote the rev after it), and whether it is only
-- that something hangs on the job; and whether it is still claimed under this epoch.
select rev = ?3 + 1 and rev_epoch = ?2 and worker = ?4 and rev_claim = ?5, rev = ?3 and epoch = ?2 and state = 0,
       epoch = ?2 and state = 0,
       lane, priority, due_at, suspect, deadline_at, hold, serial_key, serial_position, parked,
       case when parent_rev is not null then parent end, parent_rev = -1, branch is not null or has_branches is not null
from windlass_jobs where id = ?1

-- name: keep_stage
-- Keeps the stage of a machine and its data with an outcome that is no progress.
update windlass_jobs
set stage = ?2, data_codec = ?3, data = ?4,
    external_payloads = case when ?5 then coalesce(external_payloads, 0) | 4 else nullif(external_payloads & 3, 0) end
where id = ?1

-- name: add_transition
-- Records a transition: of the stage that ran to the stage the job is in now, unless it has ended (?4). Walks the primary
-- keys.
insert into windlass_transitions (job, rev, stage, next, outcome, at, worker)
values (?1, ?2, ?3,
        case when ?4 then null else coalesce(?5, (select stage from windlass_jobs where id = ?1)) end, ?6, ?7, ?8)
