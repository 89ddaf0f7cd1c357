-- Counts how children of branches have ended, or that some have begun, in the lane $7 of each branch, as far as it is there:
-- the last statement of a transaction. Locks tallies in the order given, which is by job and branch. Walks the primary keys
-- of branches and tallies.
insert into tallies as t (job, branch, lane, started, done, failed, cancelled)
select k.job, k.branch, $7::int4, k.started, k.done, k.failed, k.cancelled
from unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[])
     as k (job, branch, started, done, failed, cancelled)
where exists (select from branches b where b.job = k.job and b.number = k.branch)
order by k.job, k.branch
on conflict (job, branch, lane) do update
set started = t.started + excluded.started, done = t.done + excluded.done, failed = t.failed + excluded.failed,
    cancelled = t.cancelled + excluded.cancelled
