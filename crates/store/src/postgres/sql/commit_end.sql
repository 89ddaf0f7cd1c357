-- Ends machines, well or not, those whose epoch and rev are their change's and whose claim is recorded: as commit_done and commit_failed do with
-- plain tasks, with their transitions and entries of journals kept and what was consumed taken out of the inbox. Walks
-- the primary keys of jobs and signals; locks jobs in the order given, which is by id. Answers the ids it wrote.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), wrote as (
    update jobs j
    set state = c.state, trouble = nullif(c.state, 1), rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, worker = c.worker,
        started_at = c.started_at, finished_at = clock.now,
        stage = coalesce(c.stage, j.stage), data_codec = coalesce(c.codec, j.data_codec), data = coalesce(c.data, j.data),
        reason = c.reason, failure = coalesce(c.failure, j.failure), attempts = j.attempts + c.counts,
        output_codec = c.output_codec, output = c.output, undo = case when c.undo then true else j.undo end
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::text[], $8::text[], $9::int2[],
                       $10::bytea[], $11::text[], $12::int2[], $13::int2[], $14::text[], $15::int4[], $16::int2[],
                       $17::bytea[], $20::bool[], $31::int8[])
         as c (id, epoch, rev, worker, started_at, ran, stage, codec, data, how, state, reason, failure, counts,
               output_codec, output, undo, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($32::int8[], $33::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, j.rev, c.epoch, c.worker, c.started_at, c.ran, c.how, c.failure, j.hold is not null or j.branched is not null as held,
              j.parent, j.branch, coalesce(j.items, 1) - coalesce(j.tallied, 0) as items
), attempted as (
    insert into attempts (job, epoch, worker, started_at, ended_at, failure)
    select w.id, w.epoch, w.worker, w.started_at, clock.now, w.failure from wrote w, clock where w.failure is not null
), kept as (
    insert into steps (job, rev, stage, how, at, worker)
    select w.id, w.rev, w.ran, w.how, clock.now, w.worker from wrote w, clock where w.ran is not null
), consumed as (
    delete from signals s using unnest($18::uuid[], $19::int8[]) as e (job, number)
    where e.job = any (array(select id from wrote)) and s.job = e.job and s.number = e.number
), journaled as (
    insert into journal (job, seq, op, mark, name, key, line, at, codec, payload)
    select e.* from unnest($21::uuid[], $22::int4[], $23::int2[], $24::int2[], $25::text[], $26::text[],
                           $27::text[], $28::int8[], $29::int2[], $30::bytea[])
         as e (job, seq, op, mark, name, key, line, at, codec, payload)
    where (e.job in (select id from wrote)) is true
)
select id, held, false, parent, branch, items from wrote
