-- Execution::commit, with waits.park, journal.sql and branches.sql: one statement for all changes of a batch that are of one sort. Each is a
-- guarded update of jobs; what else a change writes depends on the rows which that update returned, so that nothing of a fenced change
-- is written. Locks jobs in the order given, which is by id; a batch of several statements locks all its jobs first (lock_jobs). SQLite
-- sends a statement per change. The last parameter of statements that end jobs, schedule or park them is the writer of counts.
--
-- Parameters that all array statements share: $1 time, $2 to $7 of each change its job, epoch, revision, worker, start and claim, $8
-- and $9 the claims of the batch, each once. Those with journals: $10 to $19 the entries. Those with steps: $20 to $26 the stage that
-- ran, the stage it leads to with codec and data, the consumed signals with their jobs, and whether there is something to undo.

-- fragment: written
-- What every change writes: its revision, and under which epoch and claim it was made.
rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, worker = c.worker, started_at = c.started_at

-- fragment: same_revision
-- The job is live, and its epoch and revision are those of the change.
j.epoch = c.epoch and j.rev = c.rev and j.state = 0

-- fragment: guard
-- The job has the revision of the change, and the claim is recorded. The claims of the batch are looked up once, as a hashed subplan;
-- `is true` keeps it from becoming a join for each job. Walks the primary keys of jobs and claims.
j.id = c.id and {{same_revision}}
and ((c.worker, c.claim) in (select k.worker, k.number from unnest($8::int8[], $9::int8[]) as d (worker, number)
                             join claims k on k.worker = d.worker and k.number = d.number)) is true

-- fragment: claim_is_recorded
-- The claim of a single change is recorded. Walks the primary key of claims.
exists (select from claims k where k.worker = c.worker and k.number = c.claim)

-- fragment: has_leftovers
-- Whether holds or branches of a job that has ended must be cleared.
j.hold is not null or j.has_branches is not null

-- fragment: branch_child
-- The branch that the job counts for, if it is in one; read by `Child::written`.
j.parent, j.branch, {{common.items_left}} as item_count

-- fragment: mark_done(codec, output)
-- Marks jobs done, at the time of `clock`.
update jobs j
set state = 1, {{written}}, finished_at = clock.now, output_codec = c.codec, output = c.output
from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int8[], {{codec}}::int2[], {{output}}::bytea[])
     as c (id, epoch, rev, worker, started_at, claim, codec, output)
where {{guard}}

-- fragment: count_done(writer)
-- Counts the jobs that `wrote` marked done in their branches, in the rows of this connection, if the branch exists. Locks branch_counts
-- by job and branch. The caller reads the sums after the commit (branches.read_counts).
counted as (
    insert into branch_counts as counts (job, branch, writer, started, done, failed, cancelled)
    select k.parent, k.branch, {{writer}}::int4, k.started, k.done, 0, 0
    from (
        select parent, branch, coalesce(sum(item_count) filter (where rev = 0), 0) as started, sum(item_count) as done
        from wrote where branch is not null group by parent, branch
    ) k
    where exists (select from branches b where b.job = k.parent and b.number = k.branch)
    order by k.parent, k.branch
    on conflict (job, branch, writer) do update set started = counts.started + excluded.started, done = counts.done + excluded.done
)

-- fragment: count_ended(writer)
-- Counts the jobs that `wrote` has ended, and records them with their times.
ended as materialized (
    {{rollups.ended_by_attempts(count(*) filter (where state = 1), count(*) filter (where state = 2), count(*) filter (where state = 3))}}
), {{add_ended({{writer}})}}

-- fragment: count_all_done(writer)
-- The same if all of them are done.
ended as materialized (
    {{rollups.ended_by_attempts(count(*), 0, 0)}}
), {{add_ended({{writer}})}}

-- fragment: add_ended(writer)
-- Adds what `ended` has counted.
counted_jobs as (
    {{counts.ended({{writer}}, ended)}}
), recorded_ends as (
    {{rollups.append(table ended)}}
)

-- fragment: ended_columns
-- What count_ended needs of a job.
j.lane, j.state, j.due_at, j.started_at, j.finished_at

-- fragment: add_entries
-- Adds the journal entries of changes that `wrote` has written.
journaled as (
    insert into journal (job, seq, call_kind, event, name, key, source_line, at, codec, payload)
    select e.* from unnest($10::uuid[], $11::int4[], $12::int2[], $13::int2[], $14::text[], $15::text[],
                           $16::text[], $17::int8[], $18::int2[], $19::bytea[])
         as e (job, seq, call_kind, event, name, key, source_line, at, codec, payload)
    where (e.job in (select id from wrote)) is true
)

-- fragment: add_attempts
-- Records the failed attempts of changes that `wrote` has written.
attempted as (
    insert into attempts (job, epoch, worker, started_at, ended_at, failure)
    select w.id, w.epoch, w.worker, w.started_at, clock.now, w.failure from wrote w, clock where w.failure is not null
)

-- fragment: add_transitions(outcome)
-- Records the transitions of changes that `wrote` has written.
transitioned as (
    insert into transitions (job, rev, stage, next, outcome, at, worker)
    select w.id, w.rev, w.ran, w.stage, {{outcome}}, clock.now, w.worker from wrote w, clock where w.ran is not null
)

-- fragment: consume_signals
-- Deletes the signals that changes consumed which `wrote` has written. Walks the primary key of signals.
consumed as (
    delete from signals s using unnest($24::uuid[], $25::int8[]) as e (job, number)
    where e.job = any (array(select id from wrote)) and s.job = e.job and s.number = e.number
)

-- fragment: stage
-- The stage that a step leads to; null leaves it as it is.
stage = coalesce(c.stage, j.stage), data_codec = coalesce(c.codec, j.data_codec), data = coalesce(c.data, j.data),
has_undo = case when c.has_undo then true else j.has_undo end

-- name: done
-- Marks tasks done where the guard holds. Returns the ids it wrote, whether they leave something to clear, and their branches.
with {{common.clock}}, wrote as (
    {{mark_done($10, $11)}}
    returning j.id, {{ended_columns}}, {{has_leftovers}} as has_leftovers, {{branch_child}}
), {{count_all_done($12)}}
select id, has_leftovers, parent, branch, item_count from wrote

-- name: done_one
-- The same for one task. It sums nothing up: a statement with aggregates starts later, which a commit of one job would feel.
with {{common.clock}}, wrote as (
    {{mark_done($10, $11)}}
    returning j.id, {{ended_columns}}, {{has_leftovers}} as has_leftovers, {{branch_child}}
), counted_jobs as (
    {{counts.add($12, select lane, -1, 0, 0, 1, 0, 0 from wrote)}}
), recorded_ends as (
    {{rollups.append({{rollups.one_done}})}}
)
select id, has_leftovers, parent, branch, item_count from wrote

-- name: done_counted
-- The same for a batch that has children of branches, which it counts in the rows of writer $12.
with {{common.clock}}, wrote as (
    {{mark_done($10, $11)}}
    returning j.id, {{ended_columns}}, {{has_leftovers}} as has_leftovers, c.rev, {{branch_child}}
), {{count_all_done($12)}}, {{count_done($12)}}
select id, has_leftovers from wrote

-- name: done_journal
-- Marks workflows done where the guard holds, with entries of their journals. Returns the same as done.
with {{common.clock}}, wrote as (
    {{mark_done($20, $21)}}
    returning j.id, {{ended_columns}}, {{has_leftovers}} as has_leftovers, {{branch_child}}
), {{count_all_done($22)}}, {{add_entries}}
select id, has_leftovers, parent, branch, item_count from wrote

-- name: done_journal_counted
-- The same for a batch that has children of branches, which it counts in the rows of writer $22.
with {{common.clock}}, wrote as (
    {{mark_done($20, $21)}}
    returning j.id, {{ended_columns}}, {{has_leftovers}} as has_leftovers, c.rev, {{branch_child}}
), {{count_all_done($22)}}, {{add_entries}}, {{count_done($22)}}
select id, has_leftovers from wrote

-- name: failed
-- Marks tasks failed or cancelled where the guard holds, and records the attempts. Returns the same as done.
with {{common.clock}}, wrote as (
    update jobs j
    set state = c.state, unsuccessful_state = c.state, {{written}}, finished_at = clock.now, reason = c.reason, failure = c.failure,
        attempts = j.attempts + c.counts, error_class = {{common.error_class(c.failure)}}, unsuccessful_stage = j.stage
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int8[],
                       $10::int2[], $11::int2[], $12::text[], $13::int4[])
         as c (id, epoch, rev, worker, started_at, claim, state, reason, failure, counts)
    where {{guard}}
    returning j.id, {{ended_columns}}, c.epoch, c.worker, c.failure, {{has_leftovers}} as has_leftovers, {{branch_child}}
), {{count_ended($14)}}, attempted as (
    insert into attempts (job, epoch, worker, started_at, ended_at, failure)
    select wrote.id, wrote.epoch, wrote.worker, wrote.started_at, clock.now, wrote.failure from wrote, clock
)
select id, has_leftovers, parent, branch, item_count from wrote

-- name: end_with_step
-- Ends machines and workflows, in any final state, where the guard holds: with their transitions, failed attempts, journal entries
-- and consumed signals. Walks the primary keys of jobs and signals. Returns the ids it wrote, whether they leave something to clear, and
-- their branches.
with {{common.clock}}, wrote as (
    update jobs j
    set state = c.state, unsuccessful_state = nullif(c.state, 1), {{written}}, finished_at = clock.now, {{stage}},
        reason = c.reason, failure = coalesce(c.failure, j.failure), attempts = j.attempts + c.counts,
        output_codec = c.output_codec, output = c.output,
        error_class = case when c.state <> 1 then {{common.error_class(c.failure)}} end,
        unsuccessful_stage = case when c.state <> 1 then coalesce(c.stage, j.stage) end
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int8[],
                       $20::text[], $21::text[], $22::int2[], $23::bytea[], $26::bool[],
                       $27::text[], $28::int2[], $29::int2[], $30::text[], $31::int4[], $32::int2[], $33::bytea[])
         as c (id, epoch, rev, worker, started_at, claim, ran, stage, codec, data, has_undo,
               outcome, state, reason, failure, counts, output_codec, output)
    where {{guard}}
    returning j.id, {{ended_columns}}, j.rev, c.epoch, c.worker, c.ran, c.outcome, c.failure,
              {{has_leftovers}} as has_leftovers, {{branch_child}}
), {{count_ended($34)}}, {{add_attempts}}, transitioned as (
    insert into transitions (job, rev, stage, outcome, at, worker)
    select w.id, w.rev, w.ran, w.outcome, clock.now, w.worker from wrote w, clock where w.ran is not null
), {{consume_signals}}, {{add_entries}}
select id, has_leftovers, false, parent, branch, item_count from wrote

-- name: retry
-- Ends claims for another attempt where the guard holds: raises the epoch, records failed attempts, transitions and journal entries,
-- deletes consumed signals, sets timers or fills the ready set, and moves gates. $27 to $29 are delay, retry counts and failure, $30 the
-- latest time there is, $31 the span by which priority moves the rank, $32 the gate writer. Walks the primary keys of jobs and
-- signals.
with {{common.clock}}, wrote as (
    update jobs j
    set {{written}}, epoch = j.epoch + 1, due_at = least(clock.now + c.after, $30), retry_counts = c.retry_counts,
        failure = coalesce(c.failure, j.failure), attempts = j.attempts + 1, suspect = false, parked = null, {{stage}},
        hold = case when c.after <= 0 and j.hold = 1 then 2 else j.hold end
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int8[],
                       $20::text[], $21::text[], $22::int2[], $23::bytea[], $26::bool[], $27::int8[], $28::text[], $29::text[])
         as c (id, epoch, rev, worker, started_at, claim, ran, stage, codec, data, has_undo, after, retry_counts, failure)
    where {{guard}}
    returning j.id, j.rev, j.stage, j.lane, j.priority, j.due_at, j.hold, c.epoch, c.worker, c.started_at, c.failure, c.ran,
              {{branch_child}}
), {{add_attempts}}, {{add_transitions('retry')}}, {{consume_signals}}, {{add_entries}}, to_timers as (
    insert into timers (due_at, job, purpose)
    select wrote.due_at, wrote.id, 0 from wrote, clock where wrote.due_at > clock.now
    on conflict do nothing
), to_ready as (
    insert into ready (lane, rank, job)
    select wrote.lane, wrote.due_at + wrote.priority * $31::int8, wrote.id from wrote, clock
    where wrote.due_at <= clock.now and wrote.hold is null
), to_gates as (
    {{gates.bump_timers_and_lanes($32, exists (select from wrote cross join clock where wrote.due_at > clock.now),
        select wrote.lane from wrote, clock where wrote.due_at <= clock.now and wrote.hold is null)}}
), counted_jobs as (
    {{counts.add($33, select lane, 0, count(*), 0, 0, 0, 0 from wrote, clock where wrote.due_at > clock.now group by lane)}}
), recorded_ends as (
    {{rollups.append(select lane, (clock.now / 60000000)::int4, null, null, 0, 0, 0, count(*)::int4, null, null, null
        from wrote, clock where wrote.failure is not null group by lane, clock.now)}}
)
select id, false, false, parent, branch, item_count from wrote

-- fragment: hold_if_requested(now)
-- A job that is paused or being cancelled is held instead of continuing: its epoch is raised, which ends the claim.
epoch = case when j.hold = 1 then j.epoch + 1 else j.epoch end,
due_at = case when j.hold = 1 then {{now}} else j.due_at end,
hold = case when j.hold = 1 then 2 else j.hold end

-- fragment: next_result
-- What the statements of steps return: the ids they wrote, whether the job is held, whether it is held and has a serial key, and its
-- branch.
select id, hold is not null, hold is not null and serial_key is not null, parent, branch, item_count from wrote

-- name: next
-- Writes steps after which the same claim continues, where the guard holds: resets the counters (unless the step is only part of an
-- attempt, of which $27 is null), records transitions and journal entries, and deletes consumed signals. Changes nothing that an index
-- holds. Walks the primary keys of jobs and signals.
with {{common.clock}}, wrote as (
    update jobs j
    set {{written}}, {{stage}},
        stage_rev = case when c.stage is null then j.stage_rev else j.rev + 1 end,
        pending_children = case when c.stage is null then j.pending_children else 0 end,
        steps_since_wait = case when j.hold = 1 and c.stage is null then j.steps_since_wait else j.steps_since_wait + 1 end,
        attempts = case when c.unchanged is null then j.attempts when c.unchanged then j.attempts + 1 else 0 end,
        retry_counts = case when c.unchanged is null then j.retry_counts end, worker_deaths = 0, solo_crashes = 0, suspect = false,
        wait = case when c.unchanged is null then j.wait end, wait_names = case when c.unchanged is null then j.wait_names end,
        wait_needs = case when c.unchanged is null then j.wait_needs end,
        wait_until = case when c.unchanged is null then j.wait_until end,
        {{hold_if_requested(clock.now)}}
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int8[],
                       $20::text[], $21::text[], $22::int2[], $23::bytea[], $26::bool[], $27::bool[])
         as c (id, epoch, rev, worker, started_at, claim, ran, stage, codec, data, has_undo, unchanged)
    where {{guard}}
    returning j.id, j.rev, j.stage, j.hold, j.serial_key, c.ran, c.worker, {{branch_child}}
), {{add_transitions('next')}}, {{consume_signals}}, {{add_entries}}
{{next_result}}

-- fragment: next_single_update
-- What a step without arrays writes: $1 to $8 are time, job, epoch, revision, worker, start, claim and whether the stage is unchanged.
rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = $7::int8, worker = $5::int8, started_at = $6::int8,
attempts = case when $8::bool then j.attempts + 1 else 0 end, retry_counts = null, worker_deaths = 0, solo_crashes = 0,
suspect = false, wait = null, wait_names = null, wait_needs = null, wait_until = null,
{{hold_if_requested({{common.now}})}}

-- fragment: next_single_guard
-- The job is live, and its epoch and revision are those of the change.
j.id = $2::uuid and j.epoch = $3::int4 and j.rev = $4::int4 and j.state = 0

-- fragment: next_single_if(claim_holds)
-- Writes one step that consumes nothing: $9 to $12 are the stage that ran, and the stage it leads to with codec and data.
with wrote as (
    update jobs j
    set {{next_single_update}},
        stage_rev = case when $10::text is null then j.stage_rev else j.rev + 1 end,
        pending_children = case when $10 is null then j.pending_children else 0 end,
        steps_since_wait = case when j.hold = 1 and $10 is null then j.steps_since_wait else j.steps_since_wait + 1 end,
        stage = coalesce($10, j.stage), data_codec = coalesce($11::int2, j.data_codec), data = coalesce($12::bytea, j.data)
    where {{next_single_guard}} and {{claim_holds}}
    returning j.id, j.rev, j.stage, j.hold, j.serial_key, {{branch_child}}
), transitioned as (
    insert into transitions (job, rev, stage, next, outcome, at, worker)
    select w.id, w.rev, $9::text, w.stage, 'next', {{common.now}}, $5::int8
    from wrote w where $9 is not null
)
{{next_result}}

-- name: next_single
-- The same as next for one step that consumes nothing: a long chain of steps is written one by one, and a statement without arrays
-- starts sooner. Walks the primary keys of jobs and claims.
{{next_single_if(exists (select from claims k where k.worker = $5 and k.number = $7))}}

-- name: next_single_further
-- The same for a step after one of the same claim, which this connection has written. That one found the claim recorded, and a claim is
-- not deleted without raising the epochs of its jobs: the row alone says enough. Walks the primary key of jobs.
{{next_single_if(j.rev_claim = $7 and j.worker = $5 and j.rev_epoch = j.epoch)}}

-- fragment: next_entry_if(claim_holds)
-- Writes one step of a workflow that adds one journal entry and nothing else: $9 is whether there is something to undo, $10 to $18 are the
-- entry.
with wrote as (
    update jobs j
    set {{next_single_update}},
        steps_since_wait = case when j.hold = 1 then j.steps_since_wait else j.steps_since_wait + 1 end,
        has_undo = case when $9::bool then true else j.has_undo end
    where {{next_single_guard}} and {{claim_holds}}
    returning j.id, j.hold, j.serial_key, {{branch_child}}
), journaled as (
    insert into journal (job, seq, call_kind, event, name, key, source_line, at, codec, payload)
    select w.id, $10::int4, $11::int2, $12::int2, $13::text, $14::text, $15::text, $16::int8, $17::int2, $18::bytea
    from wrote w
)
{{next_result}}

-- name: next_entry
-- The same as next_single for one step of a workflow that adds one journal entry and writes nothing else.
{{next_entry_if(exists (select from claims k where k.worker = $5 and k.number = $7))}}

-- name: next_entry_further
-- The same for a step after one of the same claim, as next_single_further.
{{next_entry_if(j.rev_claim = $7 and j.worker = $5 and j.rev_epoch = j.epoch)}}

-- name: lock_jobs
-- Locks jobs by id, before later statements write some of them in another order: what earlier holders of the locks wrote is visible
-- then. Walks the primary key.
select from jobs where id = any($1::uuid[]) order by id for no key update

-- name: start_unwind
-- Notes that jobs are being unwound, where the change will be written: sent before the changes themselves, after the jobs are locked.
-- Deletes deadlines, pauses and cancel requests: nothing ends or holds the job any more. Skips timers that another process is firing;
-- they find nothing to do. Walks the primary keys of jobs and timers.
with wrote as (
    update jobs j set unwind = c.unwind, has_undo = false, hold = null
    from unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[], $6::text[]) as c (job, epoch, rev, worker, claim, unwind)
    where j.id = c.job and {{same_revision}} and {{claim_is_recorded}}
    returning j.id, j.deadline_at
), {{control.delete_holds(wrote)}}, old_timers as materialized (
    select w.deadline_at as due_at, w.id as job, 1 as purpose from wrote w where w.deadline_at is not null
    union all select r.deadline_at, r.job, 2 from deleted_requests r
)
{{timers.delete_old}}

-- name: explain_unapplied
-- Lists, of changes that were not written, those that were written before: then their claim wrote the revision after theirs. Returns also
-- whether the job is still claimed under the epoch of the change. Walks the primary key of jobs.
select j.id, j.state = 0 and j.epoch = c.epoch
from unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[]) as c (id, epoch, rev, worker, claim)
join jobs j on j.id = c.id and j.rev = c.rev + 1 and j.rev_epoch = c.epoch and j.worker = c.worker and j.rev_claim = c.claim

-- name: add_pending_children
-- Adds children that were inserted to those that their parents wait for, which a step has just begun to. The parents are locked. Walks
-- the primary key of jobs.
update jobs j set pending_children = j.pending_children + k.n from unnest($1::uuid[], $2::int4[]) as k (id, n)
where j.id = k.id and j.stage_rev = j.rev

-- name: count_child_ends
-- Counts the ends ($3 is -1) or revivals ($3 is 1) of children for the waits of their parents. A child counts only while its parent is in the
-- stage that waits for it. A child whose parent_rev is -1 sends its parent a signal instead when it ends, however full the inbox is,
-- unless the parent had ended before ($4 are children whose parents ended after them, in the same transaction). Walks the primary
-- key of jobs; locks parents by id. Returns the parents; waits.wake wakes those whose wait is met.
with ended as materialized (
    select c.id, c.parent, c.parent_rev, x.position from unnest($2::uuid[]) with ordinality as x (id, position)
    join jobs c on c.id = x.id and c.parent_rev is not null
), counts as materialized (
    select parent, parent_rev, count(*)::int4 as n from ended where parent_rev >= 0 group by parent, parent_rev
), parents as materialized (
    select p.id, p.state from jobs p where p.id = any (array(select parent from ended)) order by p.id for no key update
), signalled as (
    insert into signals (job, name, at, codec, payload)
    select p.id, 'windlass.child', {{common.now}}, 0, convert_to('"' || e.id || '"', 'UTF8')
    from ended e join parents p on p.id = e.parent
    where e.parent_rev = -1 and (p.state = 0 or e.id = any($4::uuid[])) and $3::int4 = -1
    order by e.position
    returning job
), counted as (
    update jobs j set pending_children = j.pending_children + $3 * k.n from parents p join counts k on k.parent = p.id
    where j.id = p.id and j.stage_rev = k.parent_rev
    returning j.id
)
select id from counted union select job from signalled
