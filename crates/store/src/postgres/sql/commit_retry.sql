-- Puts jobs back for another attempt, those whose epoch and rev are their change's: their epoch is raised. Keeps the
-- attempts, sets the timers or fills the ready set, and moves the gates. Walks the primary key of jobs.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), wrote as (
    update jobs j
    set rev = j.rev + 1, rev_epoch = j.epoch, epoch = j.epoch + 1, worker = c.worker, started_at = c.started_at,
        due_at = least(clock.now + c.after, $10), spent = c.spent, failure = c.failure, attempts = j.attempts + 1,
        suspect = false, hold = case when c.after <= 0 and j.hold = 1 then 2 else j.hold end
    from clock, unnest($2::uuid[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int8[], $8::text[], $9::text[])
         as c (id, epoch, rev, worker, started_at, after, spent, failure)
    where j.id = c.id and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
    returning j.id, j.lane, j.priority, j.due_at, j.hold, c.epoch, c.worker, c.started_at, c.failure
), kept as (
    insert into attempts (job, epoch, worker, started_at, ended_at, failure)
    select wrote.id, wrote.epoch, wrote.worker, wrote.started_at, clock.now, wrote.failure from wrote, clock
), to_timers as (
    insert into timers (due_at, job, what)
    select wrote.due_at, wrote.id, 0 from wrote, clock where wrote.due_at > clock.now
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
select id, false from wrote
