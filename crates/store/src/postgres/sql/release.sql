-- Hands claimed jobs back where they stood in line: their epoch is raised. With workers and claims ($5, $6) only those whose
-- claim is recorded. Walks the primary keys of jobs and claims.
with wrote as (
    update jobs j set epoch = j.epoch + 1, hold = case when j.hold = 1 then 2 else j.hold end
    from unnest($1::uuid[], $2::int4[], $5::int8[], $6::int8[]) as c (id, epoch, worker, claim)
    where j.id = c.id and j.epoch = c.epoch and j.state = 0
      and (c.claim is null or exists (select from claims k where k.worker = c.worker and k.number = c.claim))
    returning j.id, j.lane, j.priority, j.due_at, j.suspect, j.hold, j.serial
), to_ready as (
    insert into ready (lane, rank, job)
    select case when suspect then -lane else lane end, due_at + priority * $3::int8, id from wrote where hold is null
), to_gates as (
    insert into gates (queue, writer, version)
    select l.queue, $4::int8, (random() * 1e12)::int8 from lanes l where l.id in (select lane from wrote where hold is null)
    group by l.queue
    on conflict (queue, writer) do update set version = gates.version + 1
)
select count(*), array_agg(id) filter (where serial is not null and hold is not null) from wrote
