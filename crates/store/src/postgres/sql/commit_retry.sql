-- Puts jobs back for another attempt, those whose epoch and rev are their change's and whose claim is recorded: their epoch is raised. Keeps the
-- attempts that failed, the transitions of machines and the entries of journals, takes what was consumed out of the
-- inbox, sets the timers or fills the ready set, and moves the gates. Walks the primary keys of jobs and signals.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), wrote as (
    update jobs j
    set rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = c.claim, epoch = j.epoch + 1, worker = c.worker, started_at = c.started_at,
        due_at = least(clock.now + c.after, $10), spent = c.spent, failure = coalesce(c.failure, j.failure),
        attempts = j.attempts + 1, suspect = false, parked = null,
        stage = coalesce(c.stage, j.stage), data_codec = coalesce(c.codec, j.data_codec), data = coalesce(c.data, j.data),
        hold = case when c.after <= 0 and j.hold = 1 then 2 else j.hold end,
        undo = case when c.undo then true else j.undo end
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int8[], $8::text[], $9::text[],
                       $13::text[], $14::text[], $15::int2[], $16::bytea[], $19::bool[], $30::int8[])
         as c (id, epoch, rev, worker, started_at, after, spent, failure, ran, stage, codec, data, undo, claim)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and ((c.worker, c.claim) in (select k.worker, k.number from unnest($31::int8[], $32::int8[]) as d (worker, number)
                                   join claims k on k.worker = d.worker and k.number = d.number)) is true
    returning j.id, j.rev, j.stage, j.lane, j.priority, j.due_at, j.hold, c.epoch, c.worker, c.started_at, c.failure, c.ran,
              j.parent, j.branch, coalesce(j.items, 1) - coalesce(j.tallied, 0) as items
), attempted as (
    insert into attempts (job, epoch, worker, started_at, ended_at, failure)
    select w.id, w.epoch, w.worker, w.started_at, clock.now, w.failure from wrote w, clock where w.failure is not null
), kept as (
    insert into steps (job, rev, stage, next, how, at, worker)
    select w.id, w.rev, w.ran, w.stage, 'retry', clock.now, w.worker from wrote w, clock where w.ran is not null
), consumed as (
    delete from signals s using unnest($17::uuid[], $18::int8[]) as e (job, number)
    where e.job = any (array(select id from wrote)) and s.job = e.job and s.number = e.number
), journaled as (
    insert into journal (job, seq, op, mark, name, key, line, at, codec, payload)
    select e.* from unnest($20::uuid[], $21::int4[], $22::int2[], $23::int2[], $24::text[], $25::text[],
                           $26::text[], $27::int8[], $28::int2[], $29::bytea[])
         as e (job, seq, op, mark, name, key, line, at, codec, payload)
    where (e.job in (select id from wrote)) is true
), to_timers as (
    insert into timers (due_at, job, what)
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
select id, false, false, parent, branch, items from wrote
