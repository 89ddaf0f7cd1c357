-- Execution::commit, with waits.park and journal.sql: writes jobs, and per job attempts, transitions and payloads. Each change is one
-- guarded update; what else the change writes follows if that update changed a row. PostgreSQL writes a batch of changes of one sort
-- by one statement.
--
-- ?1 to ?8 of every guarded update are the same: job, epoch, revision, worker, claim, started_at, has_undo and unwind. The claim itself is
-- checked before, once for each claim of a batch (claim.is_recorded).

-- fragment: written
-- What every change writes: its revision, and under which epoch and claim it was made.
rev = rev + 1, rev_epoch = epoch, rev_claim = ?5, worker = ?4, started_at = ?6,
has_undo = coalesce(?7, has_undo), unwind = coalesce(?8, unwind)

-- fragment: guard
-- The job is live, and its epoch and revision are those of the change. Walks the primary key.
id = ?1 and epoch = ?2 and rev = ?3 and state = 0

-- fragment: unattached
-- Nothing depends on the end of the job, or the caller takes care of it (?9): no hold, serial key, waiting parent or branches; its
-- own branch is counted by the caller (?10).
(?9 or (hold is null and serial_key is null and parent_rev is null and has_branches is null and (branch is null or ?10)))

-- name: done
-- Marks a job done if the guard holds and nothing depends on it. Walks the primary key.
update windlass_jobs
set state = 1, finished_at = ?11, output_codec = ?12, output = ?13,
    external_payloads = case when ?14 then coalesce(external_payloads, 0) | 2 else external_payloads end, hold = null,
    {{written}}
where {{guard}} and {{unattached}}

-- name: failed
-- Marks a job failed or cancelled (?12) if the guard holds and nothing depends on it. Walks the primary key.
update windlass_jobs
set state = ?12, unsuccessful_state = ?12, error_class = {{common.error_class(?14)}}, finished_at = ?11, reason = ?13, failure = ?14, attempts = attempts + ?15, hold = null,
    {{written}}
where {{guard}} and {{unattached}}

-- name: retry
-- Ends a claim for another attempt if the guard holds: raises the epoch, and sets when the job is due. Walks the primary key.
-- Returns the job's placement, and whether it keeps its serial slot.
update windlass_jobs
set epoch = epoch + 1, due_at = ?9, retry_counts = ?10, failure = coalesce(?11, failure), attempts = attempts + 1, suspect = 0,
    {{written}}
where {{guard}}
returning {{common.placement()}}, keeps_slot

-- fragment: stage
-- The stage that a step leads to: ?11 to ?14 are its name, codec, data and whether the data is external; no name leaves all as it is.
-- A new stage waits for children of its own; those that reset_pending_children has prepared are counted already.
stage_rev = case when ?11 is null then stage_rev else rev + 1 end,
pending_children = case when ?11 is null or stage_rev = rev + 1 then pending_children else 0 end,
stage = coalesce(?11, stage), data_codec = case when ?11 is null then data_codec else ?12 end,
data = case when ?11 is null then data else ?13 end,
external_payloads = case when ?11 is null then external_payloads else {{common.data_is_external(?14)}} end

-- fragment: leaves_no_data
-- No external data of an earlier stage has to be deleted.
(?11 is null or ?14 or coalesce(external_payloads, 0) & 4 = 0)

-- name: next
-- Writes a step after which the same claim continues, if the guard holds and the job is not held and leaves no external data (or
-- ?9: the caller takes care of both). Resets the counters, unless the step is only part of an attempt (?10 is null). Walks the
-- primary key.
update windlass_jobs
set attempts = case when ?10 is null then attempts when ?10 then attempts + 1 else 0 end,
    retry_counts = case when ?10 is null then retry_counts end, worker_deaths = 0, solo_crashes = 0, suspect = 0,
    wait = case when ?10 is null then wait end, wait_until = case when ?10 is null then wait_until end,
    steps_since_wait = steps_since_wait + 1, {{stage}}, {{written}}
where {{guard}} and (?9 or (hold is null and {{leaves_no_data}}))

-- name: explain_unapplied
-- Reads why a change was not written: whether it was written before (then this claim wrote the revision after it), whether the guard
-- holds (then something depends on the job), and whether the job is still claimed under this epoch; and the job's placement.
-- Walks the primary key.
select rev = ?3 + 1 and rev_epoch = ?2 and worker = ?4 and rev_claim = ?5, rev = ?3 and epoch = ?2 and state = 0,
       epoch = ?2 and state = 0, {{common.placement()}}
from windlass_jobs where id = ?1

-- name: add_attempt
-- Records a failed attempt.
insert into windlass_attempts (job, epoch, worker, started_at, ended_at, failure) values (?1, ?2, ?3, ?4, ?5, ?6)

-- name: add_transition
-- Records a transition: from the stage that ran to the stage the job is in now, or to none if the job has ended (?4). Walks the
-- primary key of jobs.
insert into windlass_transitions (job, rev, stage, next, outcome, at, worker)
values (?1, ?2, ?3,
        case when ?4 then null else coalesce(?5, (select stage from windlass_jobs where id = ?1)) end, ?6, ?7, ?8)

-- name: set_stage
-- Writes the stage and data of a machine with an outcome that makes no progress. Walks the primary key.
update windlass_jobs
set stage = ?2, data_codec = ?3, data = ?4, external_payloads = {{common.data_is_external(?5)}}
where id = ?1

-- name: drop_external_data
-- Deletes external data of a machine whose new data is in its row. Walks the primary key of payloads.
delete from windlass_payloads where job = ?1 and part = 4

-- name: reset_pending_children
-- Prepares a job for the stage that revision ?2 leads to, before the children of that stage are inserted: it no longer waits for
-- earlier ones. Walks the primary key.
update windlass_jobs set stage_rev = ?2, pending_children = 0 where id = ?1

-- name: add_pending_children
-- Adds ?2 to the number of children that a job waits for: those of its revision ?3, or of the revision that submitted child ?4. They count
-- only while the job is in the stage that waits for them. Walks the primary key. Returns the number, the wait and the placement.
update windlass_jobs set pending_children = pending_children + ?2
where id = ?1 and stage_rev = coalesce(?3, (select c.parent_rev from windlass_jobs c where c.id = ?4))
returning pending_children, wait, {{common.placement()}}
