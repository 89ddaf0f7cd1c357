-- Execution::register_worker, renew, release, release_claims, retire_worker and cancel_requests. Writes workers, claims and jobs. PostgreSQL
-- settles claims within renew, and releases a batch of jobs by one statement.

-- name: register
-- Registers a worker, unless the id is taken.
insert into windlass_workers (id, name, liveness_file, lease_until, serves, token) values (?1, ?2, ?3, ?4, ?5, ?6) on conflict do nothing

-- name: delete_gone
-- Deletes workers that have been gone for a week. PostgreSQL does it within register. Reads the whole table, which is short.
delete from windlass_workers where status = 2 and lease_until < ?1 - 604800000000 and id <> ?2

-- name: renew
-- Extends the lease of a live worker, and keeps what its attempts reported (?4), unless that is null. Returns whether there are workers to reap, and the worker's claims as a JSON array; no row if the
-- worker was declared dead. Walks primary keys, and reads all workers, which are few.
update windlass_workers set lease_until = ?2, progress = coalesce(?4, progress)
where id = ?1 and status = 0
returning exists (select 1 from windlass_workers where (status = 0 and lease_until <= ?3) or status = 1),
          (select json_group_array(number) from (select number from windlass_claims where worker = ?1 order by number))

-- name: end_solo
-- Notes that the job of a claim no longer runs alone. Walks the primary key of claims.
update windlass_claims set solo = 0 where worker = ?1 and number = ?2

-- name: release
-- Returns a claimed job to the position it had in the ready set: raises its epoch. Walks the primary key of jobs. Returns its placement.
update windlass_jobs set epoch = epoch + 1
where id = ?1 and epoch = ?2 and state = 0
returning {{common.placement()}}

-- name: read_claims
-- Reads all claims of a worker. Walks the primary key.
select number, jobs from windlass_claims where worker = ?1 order by number

-- name: retire
-- Retires a worker, unless it was declared dead before. Walks the primary key.
update windlass_workers set status = 2 where id = ?1 and status = 0

-- name: cancel_requests
-- Lists the cancel requests for a worker's attempts. Walks cancel_requests_worker.
select job, epoch, deadline_at, author, note from windlass_cancel_requests where worker = ?1 order by job
