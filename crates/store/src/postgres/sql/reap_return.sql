-- Returns jobs as suspects or fails them as poison, as decided; raises their epoch and keeps the lost attempts.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), fate as materialized (
    select * from unnest($2::uuid[], $3::int4[], $4::int2[], $5::int2[], $6::bool[], $7::int8[], $8::int8[], $9::text[])
         as f (id, epoch, deaths, crashes, poison, worker, claimed_at, failure)
), wrote as (
    update jobs j
    set epoch = j.epoch + 1, deaths = f.deaths, crashes = f.crashes, failure = f.failure,
        suspect = j.suspect or not f.poison, hold = case when f.poison then null when j.hold = 1 then 2 else j.hold end,
        state = case when f.poison then 2 else 0 end,
        trouble = case when f.poison then 2 end,
        reason = case when f.poison then $10::int2 end,
        finished_at = case when f.poison then clock.now end
    from fate f, clock
    where j.id = f.id and j.epoch = f.epoch and j.state = 0
    returning j.id, j.lane, j.priority, j.due_at, j.state, j.deadline_at, j.hold, j.serial, j.round
), kept as (
    insert into attempts (job, epoch, worker, started_at, ended_at, failure)
    select f.id, f.epoch, f.worker, f.claimed_at, clock.now, f.failure from fate f join wrote on wrote.id = f.id, clock
), to_ready as (
    insert into ready (lane, rank, job)
    select -lane, due_at + priority * $11::int8, id from wrote where state = 0 and hold is null
), to_gates as (
    insert into gates (queue, writer, version)
    select l.queue, $12::int8, (random() * 1e12)::int8
    from lanes l where l.id in (select lane from wrote where state = 0 and hold is null)
    group by l.queue
    on conflict (queue, writer) do update set version = gates.version + 1
)
select state, count(*), array_agg(deadline_at) filter (where state = 2 and deadline_at is not null),
       array_agg(id) filter (where state = 2 and deadline_at is not null),
       array_agg(id) filter (where serial is not null and (state <> 0 or hold is not null)),
       array_agg(id) filter (where state = 2), array_agg(id) filter (where state = 2 and round is not null)
from wrote group by state
