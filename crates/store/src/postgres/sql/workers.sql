-- Execution::register_worker, renew, release, release_claims, retire_worker and cancel_requests. Writes workers, claims, jobs, ready and gates, and
-- locks them in this order.

-- name: register
-- Registers a worker, unless the id is taken; deletes workers that have been gone for a week. Reads all workers, which are few.
with {{common.clock}}, deleted as (
    delete from workers w using clock where w.status = 2 and w.lease_until < clock.now - 604800000000 and w.id <> $2
)
insert into workers (id, name, liveness_file, lease_until, serves, token)
select $2, $3, $4, clock.now + $5::int8, $6, $7 from clock
on conflict do nothing

-- name: renew
-- Extends the lease of a live worker; deletes its settled claims ($4), unless one of their jobs is still claimed (its outcome was lost); and
-- notes which claims no longer run alone ($5), and what the worker's attempts reported ($6), unless that is null. Returns whether there are workers to reap, and the worker's claims; no row if it was declared
-- dead. Walks the primary keys of workers, claims and jobs, and reads all workers, which are few.
with {{common.clock}}, renewed as (
    update workers w set lease_until = clock.now + $3::int8, progress = coalesce($6::text, progress) from clock where w.id = $2 and w.status = 0 returning w.id
), settled as (
    delete from claims where worker = $2 and number = any($4::int8[])
      and not {{claim.has_claimed_job}}
    returning number
), not_solo as (
    update claims set solo = false
    where worker = $2 and number = any($5::int8[]) and number <> all (array(select number from settled))
)
select exists (select from workers w, clock where w.id <> $2 and ((w.status = 0 and w.lease_until <= clock.now) or w.status = 1)),
       array(select c.number from claims c
             where c.worker = $2 and c.number <> all (array(select number from settled)) order by c.number)
from renewed

-- name: release
-- Returns claimed jobs to the positions they had in the ready set: raises their epochs and moves gates. With workers and claims ($5, $6) only
-- those whose claim is recorded. Returns how many, and those that are held and must give up their serial key. Walks the primary keys of
-- jobs and claims.
with wrote as (
    update jobs j set epoch = j.epoch + 1, hold = case when j.hold = 1 then 2 else j.hold end
    from unnest($1::uuid[], $2::int4[], $5::int8[], $6::int8[]) as c (id, epoch, worker, claim)
    where j.id = c.id and j.epoch = c.epoch and j.state = 0
      and (c.claim is null or {{commit.claim_is_recorded}})
    returning j.id, j.lane, j.priority, j.due_at, j.suspect, j.hold, j.serial_key
), to_ready as (
    insert into ready (lane, rank, job)
    select {{common.ready_lane}}, due_at + priority * $3::int8, id from wrote where hold is null
), to_gates as (
    {{gates.bump_lanes($4, select lane from wrote where hold is null)}}
)
select count(*), array_agg(id) filter (where serial_key is not null and hold is not null) from wrote

-- name: take_claims
-- Deletes claims of a worker ($2, null for all), and returns their jobs. Walks the primary key.
delete from claims where worker = $1 and ($2::int8[] is null or number = any($2)) returning jobs, epochs

-- name: retire
-- Retires a worker, unless it was declared dead before. Waits for claims of it that are being made. Walks the primary key.
update workers set status = 2 where id = any (array(select w.id from workers w where w.id = $1 and w.status = 0 for update))

-- name: cancel_requests
-- Lists the cancel requests for a worker's attempts. Walks cancel_requests_worker.
select job, epoch, deadline_at, author, note from cancel_requests where worker = $1 order by job
