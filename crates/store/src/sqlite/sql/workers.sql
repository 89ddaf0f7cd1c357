-- name: register
-- Takes a worker on, unless the name is taken.
insert into windlass_workers (id, name, liveness_file, lease_until, serves) values (?1, ?2, ?3, ?4, ?5) on conflict do nothing

-- name: forget_gone
-- Forgets workers that have been gone for a week. PostgreSQL does it within enlist.
delete from windlass_workers where status = 2 and lease_until < ?1 - 604800000000 and id <> ?2

-- name: cancel_requests
-- Which attempts of a worker were told to end. Walks cancel_requests_worker.
select job, epoch, deadline_at, author, note from windlass_cancel_requests where worker = ?1 order by job

-- name: release
-- Hands a claimed job back where it stood in line: its epoch is raised.
update windlass_jobs set epoch = epoch + 1
where id = ?1 and epoch = ?2 and state = 0
returning lane, priority, due_at, suspect, deadline_at, hold, serial_key, serial_position, parked,
          case when parent_rev is not null then parent end, parent_rev = -1, branch is not null or has_branches is not null

-- name: renew
-- Lengthens a lease and says whether there is someone to reap. A dead worker stays dead.
update windlass_workers set lease_until = ?2
where id = ?1 and status = 0
returning exists (select 1 from windlass_workers where (status = 0 and lease_until <= ?3) or status = 1),
          (select json_group_array(number) from (select number from windlass_claims where worker = ?1 order by number))

-- name: end_solo
-- Notes that a claim no longer runs alone.
update windlass_claims set solo = 0 where worker = ?1 and number = ?2

-- name: retire
-- Ends a worker's service, if it was not declared dead before.
update windlass_workers set status = 2 where id = ?1 and status = 0

-- name: claims
-- All claims of a worker.
select number, jobs from windlass_claims where worker = ?1 order by number
