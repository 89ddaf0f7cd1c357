-- name: add_pending_children
-- Adds children that were put in to what their parents wait for, which a step has just begun to. Walks the primary key
-- of jobs, which are locked.
update jobs j set pending_children = j.pending_children + k.n from unnest($1::uuid[], $2::int4[]) as k (id, n)
where j.id = k.id and j.stage_rev = j.rev

-- name: done
-- Ends jobs well, those whose epoch and rev are their change's and whose claim is recorded: the claims of the batch, $10 and $11,
-- are looked for once (a hashed subplan; `is true` keeps it from becoming a join for each job). Walks the primary keys of jobs
-- and claims; locks jobs in the order given, which is by id. Answers the ids it wrote, whether something is kept beside them that is to be forgotten, and
-- what their ends count for: parent, branch and how many children they stand for that are not counted yet.
update jobs j
set state = 1, rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, worker = c.worker, started_at = c.started_at,
    finished_at = coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8),
    output_codec = c.codec, output = c.output
from unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int2[], $8::bytea[], $9::int8[])
     as c (id, epoch, rev, worker, started_at, codec, output, claim)
where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
  and ((c.worker, c.claim) in (select k.worker, k.number from unnest($10::int8[], $11::int8[]) as d (worker, number)
                               join claims k on k.worker = d.worker and k.number = d.number)) is true
returning j.id, j.hold is not null or j.has_branches is not null, j.parent, j.branch, coalesce(j.item_count, 1) - coalesce(j.items_counted, 0)

-- name: done_journal
-- The same as commit.done for workflows, with entries of their journals. Walks the primary key of jobs; locks jobs in the
-- order given, which is by id. Answers the ids it wrote.
with wrote as (
    update jobs j
    set state = 1, rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, worker = c.worker, started_at = c.started_at,
        finished_at = coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8),
        output_codec = c.codec, output = c.output
    from unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int2[], $8::bytea[], $19::int8[])
         as c (id, epoch, rev, worker, started_at, codec, output, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($20::int8[], $21::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, j.hold is not null or j.has_branches is not null as held, j.parent, j.branch, coalesce(j.item_count, 1) - coalesce(j.items_counted, 0) as item_count
), journaled as (
    insert into journal (job, seq, op, mark, name, key, source_line, at, codec, payload)
    select e.* from unnest($9::uuid[], $10::int4[], $11::int2[], $12::int2[], $13::text[], $14::text[],
                           $15::text[], $16::int8[], $17::int2[], $18::bytea[])
         as e (job, seq, op, mark, name, key, source_line, at, codec, payload)
    where (e.job in (select id from wrote)) is true
)
select id, held, parent, branch, item_count from wrote

-- name: done_journal_counted
-- The same as commit.done_journal for a batch in which there are children of branches, whose ends are counted as by
-- commit.done_counted, in the lane $19.
with wrote as (
    update jobs j
    set state = 1, rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, worker = c.worker, started_at = c.started_at,
        finished_at = coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8),
        output_codec = c.codec, output = c.output
    from unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int2[], $8::bytea[], $20::int8[])
         as c (id, epoch, rev, worker, started_at, codec, output, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($21::int8[], $22::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, j.hold is not null or j.has_branches is not null as held, j.parent, j.branch, c.rev,
              coalesce(j.item_count, 1) - coalesce(j.items_counted, 0) as item_count
), journaled as (
    insert into journal (job, seq, op, mark, name, key, source_line, at, codec, payload)
    select e.* from unnest($9::uuid[], $10::int4[], $11::int2[], $12::int2[], $13::text[], $14::text[],
                           $15::text[], $16::int8[], $17::int2[], $18::bytea[])
         as e (job, seq, op, mark, name, key, source_line, at, codec, payload)
    where (e.job in (select id from wrote)) is true
), counted as (
    insert into branch_counts as t (job, branch, writer, started, done, failed, cancelled)
    select k.parent, k.branch, $19::int4, k.started, k.done, 0, 0
    from (
        select parent, branch, coalesce(sum(item_count) filter (where rev = 0), 0) as started, sum(item_count) as done
        from wrote where branch is not null group by parent, branch
    ) k
    where exists (select from branches b where b.job = k.parent and b.number = k.branch)
    order by k.parent, k.branch
    on conflict (job, branch, writer) do update set started = t.started + excluded.started, done = t.done + excluded.done
)
select id, held from wrote

-- name: done_counted
-- The same as commit.done for a batch in which there are children of branches: their ends are counted in the lane $9 of
-- each branch, as far as it is there. Locks jobs in the order given, which is by id, then tallies by job and branch. Whoever
-- sends it looks at the branches afterwards: see branches.watched_sums.
with wrote as (
    update jobs j
    set state = 1, rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, worker = c.worker, started_at = c.started_at,
        finished_at = coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8),
        output_codec = c.codec, output = c.output
    from unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int2[], $8::bytea[], $10::int8[])
         as c (id, epoch, rev, worker, started_at, codec, output, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($11::int8[], $12::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, j.hold is not null or j.has_branches is not null as held, j.parent, j.branch, c.rev,
              coalesce(j.item_count, 1) - coalesce(j.items_counted, 0) as item_count
), counted as (
    insert into branch_counts as t (job, branch, writer, started, done, failed, cancelled)
    select k.parent, k.branch, $9::int4, k.started, k.done, 0, 0
    from (
        select parent, branch, coalesce(sum(item_count) filter (where rev = 0), 0) as started, sum(item_count) as done
        from wrote where branch is not null group by parent, branch
    ) k
    where exists (select from branches b where b.job = k.parent and b.number = k.branch)
    order by k.parent, k.branch
    on conflict (job, branch, writer) do update set started = t.started + excluded.started, done = t.done + excluded.done
)
select id, held from wrote

-- name: end_machine
-- Ends machines, well or not, those whose epoch and rev are their change's and whose claim is recorded: as commit.done and commit.failed do with
-- plain tasks, with their transitions and entries of journals kept and what was consumed taken out of the inbox. Walks
-- the primary keys of jobs and signals; locks jobs in the order given, which is by id. Answers the ids it wrote.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), wrote as (
    update jobs j
    set state = c.state, unsuccessful_state = nullif(c.state, 1), rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, worker = c.worker,
        started_at = c.started_at, finished_at = clock.now,
        stage = coalesce(c.stage, j.stage), data_codec = coalesce(c.codec, j.data_codec), data = coalesce(c.data, j.data),
        reason = c.reason, failure = coalesce(c.failure, j.failure), attempts = j.attempts + c.counts,
        output_codec = c.output_codec, output = c.output, has_undo = case when c.has_undo then true else j.has_undo end
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::text[], $8::text[], $9::int2[],
                       $10::bytea[], $11::text[], $12::int2[], $13::int2[], $14::text[], $15::int4[], $16::int2[],
                       $17::bytea[], $20::bool[], $31::int8[])
         as c (id, epoch, rev, worker, started_at, ran, stage, codec, data, outcome, state, reason, failure, counts,
               output_codec, output, has_undo, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($32::int8[], $33::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, j.rev, c.epoch, c.worker, c.started_at, c.ran, c.outcome, c.failure, j.hold is not null or j.has_branches is not null as held,
              j.parent, j.branch, coalesce(j.item_count, 1) - coalesce(j.items_counted, 0) as item_count
), attempted as (
    insert into attempts (job, epoch, worker, started_at, ended_at, failure)
    select w.id, w.epoch, w.worker, w.started_at, clock.now, w.failure from wrote w, clock where w.failure is not null
), kept as (
    insert into transitions (job, rev, stage, outcome, at, worker)
    select w.id, w.rev, w.ran, w.outcome, clock.now, w.worker from wrote w, clock where w.ran is not null
), consumed as (
    delete from signals s using unnest($18::uuid[], $19::int8[]) as e (job, number)
    where e.job = any (array(select id from wrote)) and s.job = e.job and s.number = e.number
), journaled as (
    insert into journal (job, seq, op, mark, name, key, source_line, at, codec, payload)
    select e.* from unnest($21::uuid[], $22::int4[], $23::int2[], $24::int2[], $25::text[], $26::text[],
                           $27::text[], $28::int8[], $29::int2[], $30::bytea[])
         as e (job, seq, op, mark, name, key, source_line, at, codec, payload)
    where (e.job in (select id from wrote)) is true
)
select id, held, false, parent, branch, item_count from wrote

-- name: failed
-- Ends jobs badly or by their own wish, those whose epoch and rev are their change's and whose claim is recorded, and keeps the attempts.
-- Walks the primary key of jobs. Answers the ids it wrote.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), wrote as (
    update jobs j
    set state = c.state, unsuccessful_state = c.state, rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, worker = c.worker,
        started_at = c.started_at, finished_at = clock.now, reason = c.reason, failure = c.failure,
        attempts = j.attempts + c.counts
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int2[], $8::int2[],
                       $9::text[], $10::int4[], $11::int8[])
         as c (id, epoch, rev, worker, started_at, state, reason, failure, counts, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($12::int8[], $13::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, c.epoch, c.worker, c.started_at, c.failure, j.hold is not null or j.has_branches is not null as held,
              j.parent, j.branch, coalesce(j.item_count, 1) - coalesce(j.items_counted, 0) as item_count
), kept as (
    insert into attempts (job, epoch, worker, started_at, ended_at, failure)
    select wrote.id, wrote.epoch, wrote.worker, wrote.started_at, clock.now, wrote.failure from wrote, clock
)
select id, held, parent, branch, item_count from wrote

-- name: lock_jobs
-- Locks jobs by id, before later statements write to some of them in another order: whoever was moving one of them has
-- finished then, and what it did is seen. Walks the primary key.
select from jobs where id = any($1::uuid[]) order by id for no key update

-- name: next
-- Writes steps after which the next follows under the same claim, of jobs whose epoch and rev are their change's and whose claim is recorded: epoch
-- and claim stay, counters start anew (unless it is but a part of an attempt, which is said by null for whether it is unchanged), transitions and entries of journals are kept and what was consumed leaves the
-- inbox. A job that was paused or told to end is set aside instead. Changes nothing that an index holds. Walks the
-- primary keys of jobs and signals; locks jobs in the order given, which is by id. Answers the ids it wrote, which were
-- set aside, and which of those have a serial key.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), wrote as (
    update jobs j
    set rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, worker = c.worker, started_at = c.started_at,
        stage_rev = case when c.stage is null then j.stage_rev else j.rev + 1 end,
        pending_children = case when c.stage is null then j.pending_children else 0 end, steps_since_wait = case when j.hold = 1 and c.stage is null then j.steps_since_wait else j.steps_since_wait + 1 end, stage = coalesce(c.stage, j.stage), data_codec = coalesce(c.codec, j.data_codec), data = coalesce(c.data, j.data),
        attempts = case when c.unchanged is null then j.attempts when c.unchanged then j.attempts + 1 else 0 end,
        retry_counts = case when c.unchanged is null then j.retry_counts end, worker_deaths = 0, solo_crashes = 0, suspect = false,
        wait = case when c.unchanged is null then j.wait end, wait_names = case when c.unchanged is null then j.wait_names end,
        wait_needs = case when c.unchanged is null then j.wait_needs end, wait_until = case when c.unchanged is null then j.wait_until end,
        epoch = case when j.hold = 1 then j.epoch + 1 else j.epoch end,
        due_at = case when j.hold = 1 then clock.now else j.due_at end,
        hold = case when j.hold = 1 then 2 else j.hold end, has_undo = case when c.has_undo then true else j.has_undo end
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::text[], $8::text[], $9::int2[],
                       $10::bytea[], $11::bool[], $14::bool[], $25::int8[])
         as c (id, epoch, rev, worker, started_at, ran, stage, codec, data, unchanged, has_undo, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($26::int8[], $27::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, j.rev, j.stage, j.hold, j.serial_key, c.ran, c.worker,
              j.parent, j.branch, coalesce(j.item_count, 1) - coalesce(j.items_counted, 0) as item_count
), kept as (
    insert into transitions (job, rev, stage, next, outcome, at, worker)
    select w.id, w.rev, w.ran, w.stage, 'next', clock.now, w.worker from wrote w, clock where w.ran is not null
), consumed as (
    delete from signals s using unnest($12::uuid[], $13::int8[]) as e (job, number)
    where e.job = any (array(select id from wrote)) and s.job = e.job and s.number = e.number
), journaled as (
    insert into journal (job, seq, op, mark, name, key, source_line, at, codec, payload)
    select e.* from unnest($15::uuid[], $16::int4[], $17::int2[], $18::int2[], $19::text[], $20::text[],
                           $21::text[], $22::int8[], $23::int2[], $24::bytea[])
         as e (job, seq, op, mark, name, key, source_line, at, codec, payload)
    where (e.job in (select id from wrote)) is true
)
select id, hold is not null, hold is not null and serial_key is not null, parent, branch, item_count from wrote

-- name: next_single_entry
-- The same as commit.next for one step of a workflow that adds one entry to its journal and writes nothing else: a long
-- chain of steps is written one by one, and a statement that handles no arrays starts sooner.
with wrote as (
    update jobs j
    set rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = $18::int8, worker = $5::int8, started_at = $6::int8, steps_since_wait = case when j.hold = 1 then j.steps_since_wait else j.steps_since_wait + 1 end,
        attempts = case when $7::bool then j.attempts + 1 else 0 end, retry_counts = null, worker_deaths = 0, solo_crashes = 0,
        suspect = false, wait = null, wait_names = null, wait_needs = null, wait_until = null,
        epoch = case when j.hold = 1 then j.epoch + 1 else j.epoch end,
        due_at = case when j.hold = 1 then
            coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) else j.due_at end,
        hold = case when j.hold = 1 then 2 else j.hold end, has_undo = case when $8::bool then true else j.has_undo end
    where j.id = $2::uuid and j.epoch = $3::int4 and j.rev = $4::int4 and j.state = 0
      and exists (select from claims k where k.worker = $5 and k.number = $18)
    returning j.id, j.hold, j.serial_key, j.parent, j.branch, coalesce(j.item_count, 1) - coalesce(j.items_counted, 0) as item_count
), journaled as (
    insert into journal (job, seq, op, mark, name, key, source_line, at, codec, payload)
    select w.id, $9::int4, $10::int2, $11::int2, $12::text, $13::text, $14::text, $15::int8, $16::int2, $17::bytea
    from wrote w
)
select id, hold is not null, hold is not null and serial_key is not null, parent, branch, item_count from wrote

-- name: next_single
-- The same as commit.next for one step that consumes nothing: a long chain of steps is written one by one, and a
-- statement that handles no arrays starts sooner.
with wrote as (
    update jobs j
    set rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = $12::int8, worker = $5, started_at = $6,
        stage_rev = case when $8::text is null then j.stage_rev else j.rev + 1 end,
        pending_children = case when $8 is null then j.pending_children else 0 end, steps_since_wait = case when j.hold = 1 and $8 is null then j.steps_since_wait else j.steps_since_wait + 1 end, stage = coalesce($8, j.stage),
        data_codec = coalesce($9::int2, j.data_codec), data = coalesce($10::bytea, j.data),
        attempts = case when $11::bool then j.attempts + 1 else 0 end, retry_counts = null, worker_deaths = 0, solo_crashes = 0,
        suspect = false, wait = null, wait_names = null, wait_needs = null, wait_until = null,
        epoch = case when j.hold = 1 then j.epoch + 1 else j.epoch end,
        due_at = case when j.hold = 1 then
            coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) else j.due_at end,
        hold = case when j.hold = 1 then 2 else j.hold end
    where j.id = $2::uuid and j.epoch = $3::int4 and j.rev = $4::int4 and j.state = 0
      and exists (select from claims k where k.worker = $5 and k.number = $12)
    returning j.id, j.rev, j.stage, j.hold, j.serial_key,
              j.parent, j.branch, coalesce(j.item_count, 1) - coalesce(j.items_counted, 0) as item_count
), kept as (
    insert into transitions (job, rev, stage, next, outcome, at, worker)
    select w.id, w.rev, $7::text, w.stage, 'next',
           coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8), $5::int8
    from wrote w where $7 is not null
)
select id, hold is not null, hold is not null and serial_key is not null, parent, branch, item_count from wrote

-- name: count_child_ends
-- Counts the ends ($2 is -1) or revivals (1) of children for the waits of their parents, all of one parent at once. A child
-- counts only while its parent is in the stage that waits for it. Of the end of a child whose round is -1, its parent is
-- told by a signal, if it had not ended before ($4 are children whose parents ended after them, in the same transaction), however
-- full its inbox is. Walks the primary key of jobs; locks parents by id.
-- Answers the parents: those that have what they wait for are woken by waits.wake.
with ended as materialized (
    select c.id, c.parent, c.parent_rev, x.serial_position from unnest($1::uuid[]) with ordinality as x (id, serial_position)
    join jobs c on c.id = x.id and c.parent_rev is not null
), counts as materialized (
    select parent, parent_rev, count(*)::int4 as n from ended where parent_rev >= 0 group by parent, parent_rev
), parents as materialized (
    select p.id, p.state from jobs p where p.id = any (array(select parent from ended)) order by p.id for no key update
), told as (
    insert into signals (job, name, at, codec, payload)
    select p.id, 'windlass.child', coalesce($3::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8), 0,
           convert_to('"' || e.id || '"', 'UTF8')
    from ended e join parents p on p.id = e.parent
    where e.parent_rev = -1 and (p.state = 0 or e.id = any($4::uuid[])) and $2::int4 = -1
    order by e.serial_position
    returning job
), counted as (
    update jobs j set pending_children = j.pending_children + $2 * k.n from parents p join counts k on k.parent = p.id
    where j.id = p.id and j.stage_rev = k.parent_rev
    returning j.id
)
select id from counted union select job from told

-- name: retry
-- Puts jobs back for another attempt, those whose epoch and rev are their change's and whose claim is recorded: their epoch is raised. Keeps the
-- attempts that failed, the transitions of machines and the entries of journals, takes what was consumed out of the
-- inbox, sets the timers or fills the ready set, and moves the gates. Walks the primary keys of jobs and signals.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), wrote as (
    update jobs j
    set rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, epoch = j.epoch + 1, worker = c.worker, started_at = c.started_at,
        due_at = least(clock.now + c.after, $10), retry_counts = c.retry_counts, failure = coalesce(c.failure, j.failure),
        attempts = j.attempts + 1, suspect = false, parked = null,
        stage = coalesce(c.stage, j.stage), data_codec = coalesce(c.codec, j.data_codec), data = coalesce(c.data, j.data),
        hold = case when c.after <= 0 and j.hold = 1 then 2 else j.hold end,
        has_undo = case when c.has_undo then true else j.has_undo end
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int8[], $8::text[], $9::text[],
                       $13::text[], $14::text[], $15::int2[], $16::bytea[], $19::bool[], $30::int8[])
         as c (id, epoch, rev, worker, started_at, after, retry_counts, failure, ran, stage, codec, data, has_undo, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($31::int8[], $32::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, j.rev, j.stage, j.lane, j.priority, j.due_at, j.hold, c.epoch, c.worker, c.started_at, c.failure, c.ran,
              j.parent, j.branch, coalesce(j.item_count, 1) - coalesce(j.items_counted, 0) as item_count
), attempted as (
    insert into attempts (job, epoch, worker, started_at, ended_at, failure)
    select w.id, w.epoch, w.worker, w.started_at, clock.now, w.failure from wrote w, clock where w.failure is not null
), kept as (
    insert into transitions (job, rev, stage, next, outcome, at, worker)
    select w.id, w.rev, w.ran, w.stage, 'retry', clock.now, w.worker from wrote w, clock where w.ran is not null
), consumed as (
    delete from signals s using unnest($17::uuid[], $18::int8[]) as e (job, number)
    where e.job = any (array(select id from wrote)) and s.job = e.job and s.number = e.number
), journaled as (
    insert into journal (job, seq, op, mark, name, key, source_line, at, codec, payload)
    select e.* from unnest($20::uuid[], $21::int4[], $22::int2[], $23::int2[], $24::text[], $25::text[],
                           $26::text[], $27::int8[], $28::int2[], $29::bytea[])
         as e (job, seq, op, mark, name, key, source_line, at, codec, payload)
    where (e.job in (select id from wrote)) is true
), to_timers as (
    insert into timers (due_at, job, purpose)
    select wrote.due_at, wrote.id, 0 from wrote, clock where wrote.due_at > clock.now
    on conflict do nothing
), to_ready as (
    insert into ready (lane, rank, job)
    select wrote.lane, wrote.due_at + wrote.priority * $11::int8, wrote.id from wrote, clock
    where wrote.due_at <= clock.now and wrote.hold is null
), to_gates as (
    insert into gates (queue, writer, version)
    select l.queue, $12::int8, (random() * 1e12)::int8
    from lanes l where l.id in (select wrote.lane from wrote, clock where wrote.due_at <= clock.now and wrote.hold is null)
    group by l.queue
    union all
    select 0, $12, (random() * 1e12)::int8 where exists (select from wrote, clock where wrote.due_at > clock.now)
    on conflict (queue, writer) do update set version = gates.version + 1
)
select id, false, false, parent, branch, item_count from wrote

-- name: find_unapplied
-- Which of the changes that did not apply were applied before: then their claim wrote the rev after theirs. Answers also
-- whether the epoch they were made under holds still.
select j.id, j.state = 0 and j.epoch = c.epoch
from unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[]) as c (id, epoch, rev, worker, claim)
join jobs j on j.id = c.id and j.rev = c.rev + 1 and j.rev_epoch = c.epoch and j.worker = c.worker and j.rev_claim = c.claim

-- name: unwind
-- Notes that jobs are being unwound, those whose epoch and rev are their change's and whose claim is known: sent before the changes themselves,
-- and after the jobs are locked. Nothing ends them or holds them back any more: deadlines, pauses and orders are forgotten
-- (timers that are firing are passed over, and find nothing to do). Walks the primary keys of jobs and timers.
with wrote as (
    update jobs j set unwind = c.unwind, has_undo = false, hold = null
    from unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[], $6::text[]) as c (job, epoch, rev, worker, claim, unwind)
    where j.id = c.job and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and exists (select from claims k where k.worker = c.worker and k.number = c.claim)
    returning j.id, j.deadline_at
), unpaused as (
    delete from paused_jobs p using wrote w where p.job = w.id
), untold as (
    delete from cancel_requests r using wrote w where r.job = w.id returning r.job, r.deadline_at
), timed as materialized (
    select w.deadline_at as due_at, w.id, 1 as purpose from wrote w where w.deadline_at is not null
    union all select r.deadline_at, r.job, 2 from untold r
)
delete from timers where ctid = any (array(
    select t.ctid from timed d join timers t on t.due_at = d.due_at and t.job = d.id and t.purpose = d.purpose
    for update of t skip locked
))
