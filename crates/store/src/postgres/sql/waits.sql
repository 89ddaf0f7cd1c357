-- Execution::commit, as far as it parks jobs; and all that wakes them. A wait and the signal that ends it meet at the lock of the job's row: park
-- writes the row before wake reads the inbox, and a signal locks the row before it reads it. So one of them sees the other.

-- name: park
-- Writes steps that end the claim where commit.guard holds: parks the job, or makes it ready again if it waits for nothing. Raises the epoch,
-- resets the counters, records transitions and journal entries, deletes consumed signals, sets timers and moves gates. A wait that is met
-- already is ended by wake, a statement of its own. Walks the primary keys of jobs and signals; locks jobs in the order given, which is by id.
-- Parameters as in commit.sql; $27 whether the stage is unchanged, $28 outcome, $29 to $32 the wait as JSON, its names, how many are needed
-- and its timeout, $33 the latest time there is, $34 the span by which priority moves the rank, $35 the gate writer, $36 that of counts.
with {{common.clock}}, wrote as (
    update jobs j
    set {{commit.written}}, {{commit.stage}}, epoch = j.epoch + 1,
        stage_rev = case when c.stage is null then j.stage_rev else j.rev + 1 end,
        pending_children = case when c.stage is null then j.pending_children else 0 end,
        steps_since_wait = case when c.stage is null then j.steps_since_wait when c.wait is null then j.steps_since_wait + 1 else 0 end,
        attempts = case when c.unchanged then j.attempts + 1 else 0 end, retry_counts = null, worker_deaths = 0, solo_crashes = 0,
        suspect = false, wait = c.wait, wait_names = string_to_array(c.wait_names, ' '), wait_needs = c.wait_needs,
        wait_until = case when c.timeout is not null then least(clock.now + c.timeout, $33::int8) end,
        due_at = case when c.timeout is not null then least(clock.now + c.timeout, $33) else clock.now end,
        parked = case when c.wait is not null then 1 end, parked_at = case when c.wait is not null then clock.now end,
        hold = case when c.wait is null and j.hold = 1 then 2 else j.hold end
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int8[],
                       $20::text[], $21::text[], $22::int2[], $23::bytea[], $26::bool[], $27::bool[],
                       $28::text[], $29::text[], $30::text[], $31::int4[], $32::int8[])
         as c (id, epoch, rev, worker, started_at, claim, ran, stage, codec, data, has_undo, unchanged,
               outcome, wait, wait_names, wait_needs, timeout)
    where {{commit.guard}}
    returning j.id, j.rev, j.stage, j.lane, j.priority, j.due_at, j.wait_until, j.parked, j.hold, c.ran, c.outcome, c.worker,
              {{commit.branch_child}}
), {{commit.add_transitions(w.outcome)}}, {{commit.consume_signals}}, {{commit.add_entries}}, to_timers as (
    insert into timers (due_at, job, purpose) select wait_until, id, 0 from wrote where wait_until is not null
    on conflict do nothing
), to_ready as (
    insert into ready (lane, rank, job)
    select lane, due_at + priority * $34::int8, id from wrote where parked is null and hold is null
), to_gates as (
    {{gates.bump_timers_and_lanes($35, exists (select from wrote where wait_until is not null),
        select lane from wrote where parked is null and hold is null)}}
), to_parked as (
    insert into parked_jobs (stage, job) select coalesce(stage, ''), id from wrote where parked = 1
    on conflict do nothing
), counted_jobs as (
    {{counts.add($36, select lane, 0, 0, count(*), 0, 0, 0 from wrote where parked = 1 group by lane)}}
)
select id, false, false, parent, branch, item_count from wrote

-- fragment: awaited_signals
-- How many of the names that a job waits for have a signal in its inbox. Walks the primary key of signals.
(select count(distinct s.name) from signals s
 where s.job = j.id and s.name = any(j.wait_names) and s.unreadable is null)

-- fragment: unpark(jobs)
-- Deletes jobs, which a query or CTE lists with their stages, from those that are parked. Walks the primary key.
delete from parked_jobs p using {{jobs}} u where p.job = u.id and p.stage = coalesce(u.stage, '')

-- name: wake
-- Wakes those of some jobs, which are locked, that are parked and have what they wait for: the one way out of a wait before its time is over.
-- Deletes their timers (skipping those that another process is firing) and makes them ready: adds them to the ready set and moves its gates,
-- or to those that wait for their serial key, or holds them; records how long they waited. A statement of its own, after the locks: it
-- must see the signals of earlier holders of them. Returns who was woken, and whose serial key must be settled. Walks the primary keys of
-- jobs, signals and timers.
with {{common.clock}}, woken as (
    update jobs j
    set parked = 0, due_at = clock.now, hold = case when j.hold = 1 then 2 else j.hold end
    from clock
    where j.id = any($2::uuid[]) and j.parked = 1 and j.state = 0
      and case when j.wait_names is null then j.pending_children <= 0 else {{awaited_signals}} >= j.wait_needs end
    returning j.id, j.lane, j.stage, j.suspect, j.due_at + j.priority * $3::int8 as rank, j.wait_until, j.hold, j.serial_key,
              j.serial_position, {{serial.has_slot}} as has_slot, j.kind, j.wait_names, j.wait_needs, j.parked_at,
              j.due_at as ended_at, false as timed_out
), deleted_timers as (
    {{timers.delete_unlocked(woken w join timers t on t.due_at = w.wait_until and t.job = w.id and t.purpose = 0)}}
), to_waiting as (
    insert into serial_waiting (serial_key, serial_position, job)
    select serial_key, serial_position, id from woken where hold is null and not has_slot
    on conflict do nothing
), to_ready as (
    insert into ready (lane, rank, job) select {{common.ready_lane}}, rank, id from woken where hold is null and has_slot
), to_gates as (
    {{gates.bump_lanes($4, select lane from woken where hold is null and has_slot)}}
), unparked as (
    {{unpark(woken)}}
), counted_jobs as (
    {{counts.add($5, select lane, 0, 0, -count(*), 0, 0, 0 from woken group by lane)}}
), recorded_waits as (
    {{rollups.append_waits(woken)}}
)
select id, serial_key is not null and (hold is not null or not has_slot) from woken
