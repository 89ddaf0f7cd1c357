-- The sum of what is counted of a branch, and how many children were spawned in it. Walks the primary keys of tallies and
-- branches.
select coalesce(sum(done), 0)::int8, coalesce(sum(failed), 0)::int8, coalesce(sum(cancelled), 0)::int8,
       coalesce((select b.spawned from branches b where b.job = $1 and b.number = $2), 0)::int8
from tallies where job = $1::uuid and branch = $2::int8
