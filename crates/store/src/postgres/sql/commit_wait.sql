-- Parks jobs whose epoch and rev are their change's and whose claim is recorded, or puts those that wait for nothing back into the ready set: their
-- epoch is raised, counters start anew, transitions and entries of journals are kept and what was consumed leaves the
-- inbox. Sets the timers and moves the gates. What ends a wait at once is seen by signal_wake, in a statement of its
-- own. Walks the primary keys of jobs and signals; locks jobs in the order given, which is by id. Answers the ids it
-- wrote.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), wrote as (
    update jobs j
    set rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, epoch = j.epoch + 1, worker = c.worker, started_at = c.started_at,
        since = case when c.stage is null then j.since else j.rev + 1 end,
        pending = case when c.stage is null then j.pending else 0 end,
        run = case when c.stage is null then j.run when c.wait is null then j.run + 1 else 0 end, stage = coalesce(c.stage, j.stage), data_codec = coalesce(c.codec, j.data_codec), data = coalesce(c.data, j.data),
        attempts = case when c.unchanged then j.attempts + 1 else 0 end, spent = null, deaths = 0, crashes = 0,
        suspect = false, wait = c.wait, waits = string_to_array(c.waits, ' '), needs = c.needs,
        until = case when c.timeout is not null then least(clock.now + c.timeout, $19::int8) end,
        due_at = case when c.timeout is not null then least(clock.now + c.timeout, $19) else clock.now end,
        parked = case when c.wait is not null then 1 end,
        hold = case when c.wait is null and j.hold = 1 then 2 else j.hold end,
        undo = case when c.undo then true else j.undo end
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::text[], $8::text[], $9::int2[],
                       $10::bytea[], $11::bool[], $12::text[], $13::text[], $14::text[], $15::int4[], $16::int8[],
                       $22::bool[], $33::int8[])
         as c (id, epoch, rev, worker, started_at, ran, stage, codec, data, unchanged, how, wait, waits, needs, timeout,
               undo, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($34::int8[], $35::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, j.rev, j.stage, j.lane, j.priority, j.due_at, j.until, j.parked, j.hold, c.ran, c.how, c.worker,
              j.parent, j.branch, coalesce(j.items, 1) - coalesce(j.tallied, 0) as items
), kept as (
    insert into steps (job, rev, stage, next, how, at, worker)
    select w.id, w.rev, w.ran, w.stage, w.how, clock.now, w.worker from wrote w, clock where w.ran is not null
), consumed as (
    delete from signals s using unnest($17::uuid[], $18::int8[]) as e (job, number)
    where e.job = any (array(select id from wrote)) and s.job = e.job and s.number = e.number
), journaled as (
    insert into journal (job, seq, op, mark, name, key, line, at, codec, payload)
    select e.* from unnest($23::uuid[], $24::int4[], $25::int2[], $26::int2[], $27::text[], $28::text[],
                           $29::text[], $30::int8[], $31::int2[], $32::bytea[])
         as e (job, seq, op, mark, name, key, line, at, codec, payload)
    where (e.job in (select id from wrote)) is true
), to_timers as (
    insert into timers (due_at, job, what) select until, id, 0 from wrote where until is not null
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
    select 0, $21, (random() * 1e12)::int8 where exists (select from wrote where until is not null)
    on conflict (queue, writer) do update set version = gates.version + 1
)
select id, false, false, parent, branch, items from wrote
