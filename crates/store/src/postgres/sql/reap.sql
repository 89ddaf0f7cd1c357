-- name: claims
-- Takes claims of dead workers, a bounded batch; passes over those that another reaper is walking.
delete from claims where ctid = any (array(
    select c.ctid from claims c join workers w on w.id = c.worker
    where w.status = 1
    order by c.worker, c.number
    limit $1
    for update of c skip locked
))
returning worker, number, solo, claimed_at, jobs, epochs

-- name: retire_dead
-- Dead workers with nothing left to walk are gone; answers whether others are left.
with gone as (
    update workers set status = 2
    where status = 1 and not exists (select 1 from claims c where c.worker = workers.id)
    returning id
)
select exists (select 1 from workers where status = 1 and id not in (select id from gone))

-- name: lock_jobs
-- Jobs of dead workers that are still claimed under their epoch, locked by id, with the parents whose waits count them;
-- which have something to undo before they end, which have branches, and for which branches they count.
select j.id, j.epoch, j.worker_deaths, j.solo_crashes, coalesce(j.has_undo and j.unwind is null, false),
       coalesce(j.has_branches, false), case when j.branch is not null then j.parent end, j.branch,
       coalesce(j.item_count, 1) - coalesce(j.items_counted, 0), j.rev
from jobs j
where j.id = any (array(select unnest($1::uuid[]) union select c.parent from jobs c where c.id = any($1) and c.parent_rev is not null))
  and j.state = 0
order by j.id
for update

-- name: keep_lost_attempts
-- Keeps the lost attempts of jobs of dead workers that are unwound instead of failing as poison; control.unwind comes next.
-- Walks the primary key of jobs, which are locked.
with wrote as (
    update jobs j set failure = f.failure
    from unnest($2::uuid[], $3::int4[], $4::int8[], $5::int8[], $6::text[]) as f (id, epoch, worker, claimed_at, failure)
    where j.id = f.id and j.epoch = f.epoch and j.state = 0
    returning f.*
)
insert into attempts (job, epoch, worker, started_at, ended_at, failure)
select w.id, w.epoch, w.worker, w.claimed_at,
       coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8), w.failure
from wrote w

-- name: return_jobs
-- Returns jobs as suspects or fails them as poison, as decided; raises their epoch and keeps the lost attempts.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), fate as materialized (
    select * from unnest($2::uuid[], $3::int4[], $4::int2[], $5::int2[], $6::bool[], $7::int8[], $8::int8[], $9::text[])
         as f (id, epoch, worker_deaths, solo_crashes, poison, worker, claimed_at, failure)
), wrote as (
    update jobs j
    set epoch = j.epoch + 1, worker_deaths = f.worker_deaths, solo_crashes = f.solo_crashes, failure = f.failure,
        suspect = j.suspect or not f.poison, hold = case when f.poison then null when j.hold = 1 then 2 else j.hold end,
        state = case when f.poison then 2 else 0 end,
        unsuccessful_state = case when f.poison then 2 end,
        reason = case when f.poison then $10::int2 end,
        finished_at = case when f.poison then clock.now end
    from fate f, clock
    where j.id = f.id and j.epoch = f.epoch and j.state = 0
    returning j.id, j.lane, j.priority, j.due_at, j.state, j.deadline_at, j.hold, j.serial_key, j.parent_rev
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
       array_agg(id) filter (where serial_key is not null and (state <> 0 or hold is not null)),
       array_agg(id) filter (where state = 2), array_agg(id) filter (where state = 2 and parent_rev is not null)
from wrote group by state

-- name: declare_dead
-- Declares workers dead: those named and, if asked, those whose lease has run out. Waits for claims under way,
-- so that none of them is missed afterwards.
update workers set status = 1 where id = any (array(
    select w.id from workers w
    where w.status = 0 and (w.id = any($2::int8[]) or ($3 and w.lease_until <= coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8)))
    order by w.id
    for update
))
returning id
