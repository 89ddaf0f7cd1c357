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
        since = case when c.stage is null then j.since else j.rev + 1 end,
        pending = case when c.stage is null then j.pending else 0 end, run = case when j.hold = 1 and c.stage is null then j.run else j.run + 1 end, stage = coalesce(c.stage, j.stage), data_codec = coalesce(c.codec, j.data_codec), data = coalesce(c.data, j.data),
        attempts = case when c.unchanged is null then j.attempts when c.unchanged then j.attempts + 1 else 0 end,
        spent = case when c.unchanged is null then j.spent end, deaths = 0, crashes = 0, suspect = false,
        wait = case when c.unchanged is null then j.wait end, waits = case when c.unchanged is null then j.waits end,
        needs = case when c.unchanged is null then j.needs end, until = case when c.unchanged is null then j.until end,
        epoch = case when j.hold = 1 then j.epoch + 1 else j.epoch end,
        due_at = case when j.hold = 1 then clock.now else j.due_at end,
        hold = case when j.hold = 1 then 2 else j.hold end, undo = case when c.undo then true else j.undo end
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::text[], $8::text[], $9::int2[],
                       $10::bytea[], $11::bool[], $14::bool[], $25::int8[])
         as c (id, epoch, rev, worker, started_at, ran, stage, codec, data, unchanged, undo, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($26::int8[], $27::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, j.rev, j.stage, j.hold, j.serial, c.ran, c.worker,
              j.parent, j.branch, coalesce(j.items, 1) - coalesce(j.tallied, 0) as items
), kept as (
    insert into steps (job, rev, stage, next, how, at, worker)
    select w.id, w.rev, w.ran, w.stage, 'next', clock.now, w.worker from wrote w, clock where w.ran is not null
), consumed as (
    delete from signals s using unnest($12::uuid[], $13::int8[]) as e (job, number)
    where e.job = any (array(select id from wrote)) and s.job = e.job and s.number = e.number
), journaled as (
    insert into journal (job, seq, op, mark, name, key, line, at, codec, payload)
    select e.* from unnest($15::uuid[], $16::int4[], $17::int2[], $18::int2[], $19::text[], $20::text[],
                           $21::text[], $22::int8[], $23::int2[], $24::bytea[])
         as e (job, seq, op, mark, name, key, line, at, codec, payload)
    where (e.job in (select id from wrote)) is true
)
select id, hold is not null, hold is not null and serial is not null, parent, branch, items from wrote
