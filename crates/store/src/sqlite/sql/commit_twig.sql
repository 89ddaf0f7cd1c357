-- A job as far as branches go: the one it is in, how many children it stands for that are not counted, its revision, how it
-- ended, and whether it has branches. Walks the primary key.
select parent, branch, coalesce(items, 1) - coalesce(tallied, 0), rev, state, reason, branched is not null
from windlass_jobs where id = ?1
