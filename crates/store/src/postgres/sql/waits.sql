-- name: park
-- Parks jobs whose epoch and rev are their change's and whose claim is recorded, or puts those that wait for nothing back into the ready set: their
-- epoch is raised, counters start anew, transitions and entries of journals are kept and what was consumed leaves the
-- inbox. Sets the timers and moves the gates. What ends a wait at once is seen by waits.wake, in a statement of its
-- own. Walks the primary keys of jobs and signals; locks jobs in the order given, which is by id. Answers the ids it
-- wrote.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), wrote as (
    update jobs j
    set rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, epoch = j.epoch + 1, worker = c.worker, started_at = c.started_at,
        stage_rev = case when c.stage is null then j.stage_rev else j.rev + 1 end,
        pending_children = case when c.stage is null then j.pending_children else 0 end,
        steps_since_wait = case when c.stage is null then j.steps_since_wait when c.wait is null then j.steps_since_wait + 1 else 0 end, stage = coalesce(c.stage, j.stage), data_codec = coalesce(c.codec, j.data_codec), data = coalesce(c.data, j.data),
        attempts = case when c.unchanged then j.attempts + 1 else 0 end, retry_counts = null, worker_deaths = 0, solo_crashes = 0,
        suspect = false, wait = c.wait, wait_names = string_to_array(c.wait_names, ' '), wait_needs = c.wait_needs,
        wait_until = case when c.timeout is not null then least(clock.now + c.timeout, $19::int8) end,
        due_at = case when c.timeout is not null then least(clock.now + c.timeout, $19) else clock.now end,
        parked = case when c.wait is not null then 1 end,
        hold = case when c.wait is null and j.hold = 1 then 2 else j.hold end,
        has_undo = case when c.has_undo then true else j.has_undo end
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::text[], $8::text[], $9::int2[],
                       $10::bytea[], $11::bool[], $12::text[], $13::text[], $14::text[], $15::int4[], $16::int8[],
                       $22::bool[], $33::int8[])
         as c (id, epoch, rev, worker, started_at, ran, stage, codec, data, unchanged, outcome, wait, wait_names, wait_needs, timeout,
               has_undo, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($34::int8[], $35::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, j.rev, j.stage, j.lane, j.priority, j.due_at, j.wait_until, j.parked, j.hold, c.ran, c.outcome, c.worker,
              j.parent, j.branch, coalesce(j.item_count, 1) - coalesce(j.items_counted, 0) as item_count
), kept as (
    insert into transitions (job, rev, stage, next, outcome, at, worker)
    select w.id, w.rev, w.ran, w.stage, w.outcome, clock.now, w.worker from wrote w, clock where w.ran is not null
), consumed as (
    delete from signals s using unnest($17::uuid[], $18::int8[]) as e (job, number)
    where e.job = any (array(select id from wrote)) and s.job = e.job and s.number = e.number
), journaled as (
    insert into journal (job, seq, op, mark, name, key, source_line, at, codec, payload)
    select e.* from unnest($23::uuid[], $24::int4[], $25::int2[], $26::int2[], $27::text[], $28::text[],
                           $29::text[], $30::int8[], $31::int2[], $32::bytea[])
         as e (job, seq, op, mark, name, key, source_line, at, codec, payload)
    where (e.job in (select id from wrote)) is true
), to_timers as (
    insert into timers (due_at, job, purpose) select wait_until, id, 0 from wrote where wait_until is not null
    on conflict do nothing
), to_ready as (
    insert into ready (lane, rank, job)
    select lane, due_at + priority * $20::int8, id from wrote where parked is null and hold is null
), to_gates as (
    insert into gates (queue, writer, version)
    select l.queue, $21::int8, (random() * 1e12)::int8
    from lanes l where l.id in (select lane from wrote where parked is null and hold is null)
    group by l.queue
    union all
    select 0, $21, (random() * 1e12)::int8 where exists (select from wrote where wait_until is not null)
    on conflict (queue, writer) do update set version = gates.version + 1
)
select id, false, false, parent, branch, item_count from wrote

-- name: wake
-- Wakes those of some jobs that are parked and have what they wait for: the one way out of a wait before its time is
-- over. Their timers are forgotten (one that is firing is passed over, and finds nothing to do), and they enter the ready
-- set, the line of their serial key if they have none of its slots, or are set aside. Gates move for what became ready.
-- A statement of its own, after the jobs are locked: it must see the signals of whoever had the lock before. Walks the
-- primary keys of jobs, signals and timers. Answers who was woken, and whose key is to be settled.
with clock as materialized (
    select coalesce($2::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), woken as (
    update jobs j
    set parked = 0, due_at = clock.now, hold = case when j.hold = 1 then 2 else j.hold end
    from clock
    where j.id = any($1::uuid[]) and j.parked = 1 and j.state = 0
      and case when j.wait_names is null then j.pending_children <= 0
          else (select count(distinct s.name) from signals s
                where s.job = j.id and s.name = any(j.wait_names) and s.unreadable is null) >= j.wait_needs end
    returning j.id, j.lane, j.suspect, j.due_at + j.priority * $3::int8 as rank, j.wait_until, j.hold, j.serial_key, j.serial_position,
              j.serial_key is null
              or (select true from serial_holders h where h.serial_key = j.serial_key and h.job = j.id) is not null as free
), untimed as (
    delete from timers where ctid = any (array(
        select t.ctid from woken w join timers t on t.due_at = w.wait_until and t.job = w.id and t.purpose = 0
        for update of t skip locked
    ))
), to_line as (
    insert into serial_waiting (serial_key, serial_position, job) select serial_key, serial_position, id from woken where hold is null and not free
    on conflict do nothing
), to_ready as (
    insert into ready (lane, rank, job)
    select case when suspect then -lane else lane end, rank, id from woken where hold is null and free
), to_gates as (
    insert into gates (queue, writer, version)
    select l.queue, $4::int8, (random() * 1e12)::int8 from lanes l
    where l.id in (select lane from woken where hold is null and free)
    group by l.queue
    on conflict (queue, writer) do update set version = gates.version + 1
)
select id, serial_key is not null and (hold is not null or not free) from woken
