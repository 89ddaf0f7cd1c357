-- name: register
-- Takes a worker on, unless the name is taken; forgets workers that have been gone for a week.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), forgotten as (
    delete from workers w using clock where w.status = 2 and w.lease_until < clock.now - 604800000000 and w.id <> $2
)
insert into workers (id, name, liveness_file, lease_until, serves)
select $2, $3, $4, clock.now + $5::int8, $6 from clock
on conflict do nothing

-- name: cancel_requests
-- Which attempts of a worker were told to end.
select job, epoch, deadline_at, author, note from cancel_requests where worker = $1 order by job

-- name: release
-- Hands claimed jobs back where they stood in line: their epoch is raised. With workers and claims ($5, $6) only those whose
-- claim is recorded. Walks the primary keys of jobs and claims.
with wrote as (
    update jobs j set epoch = j.epoch + 1, hold = case when j.hold = 1 then 2 else j.hold end
    from unnest($1::uuid[], $2::int4[], $5::int8[], $6::int8[]) as c (id, epoch, worker, claim)
    where j.id = c.id and j.epoch = c.epoch and j.state = 0
      and (c.claim is null or exists (select from claims k where k.worker = c.worker and k.number = c.claim))
    returning j.id, j.lane, j.priority, j.due_at, j.suspect, j.hold, j.serial_key
), to_ready as (
    insert into ready (lane, rank, job)
    select case when suspect then -lane else lane end, due_at + priority * $3::int8, id from wrote where hold is null
), to_gates as (
    insert into gates (queue, writer, version)
    select l.queue, $4::int8, (random() * 1e12)::int8 from lanes l where l.id in (select lane from wrote where hold is null)
    group by l.queue
    on conflict (queue, writer) do update set version = gates.version + 1
)
select count(*), array_agg(id) filter (where serial_key is not null and hold is not null) from wrote

-- name: renew
-- Lengthens a lease and says whether there is someone to reap. A dead worker stays dead. Forgets settled claims, unless one of
-- their jobs is still claimed (its outcome was lost), and notes which no longer run alone.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), held as (
    update workers w set lease_until = clock.now + $3::int8 from clock where w.id = $2 and w.status = 0 returning w.id
), settled as (
    delete from claims where worker = $2 and number = any($4::int8[])
      and not exists (select from unnest(claims.jobs, claims.epochs) as p (id, epoch)
                      where (select j.state from jobs j where j.id = p.id and j.epoch = p.epoch) = 0)
    returning number
), joined as (
    update claims set solo = false
    where worker = $2 and number = any($5::int8[]) and number <> all (array(select number from settled))
)
select exists (select from workers w, clock where w.id <> $2 and ((w.status = 0 and w.lease_until <= clock.now) or w.status = 1)),
       array(select c.number from claims c
             where c.worker = $2 and c.number <> all (array(select number from settled)) order by c.number)
from held

-- name: retire
-- Ends a worker's service, if it was not declared dead before. Waits for claims of it under way.
update workers set status = 2 where id = any (array(select w.id from workers w where w.id = $1 and w.status = 0 for update))

-- name: claims
-- Forgets claims of a worker (null: all), and answers what was in them.
delete from claims where worker = $1 and ($2::int8[] is null or number = any($2)) returning jobs, epochs
