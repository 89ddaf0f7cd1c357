-- The sum of what is counted of a branch. Walks the primary key of tallies.
select coalesce(sum(done), 0)::int8, coalesce(sum(failed), 0)::int8, coalesce(sum(cancelled), 0)::int8
from tallies where job = $1::uuid and branch = $2::int8
