-- The branch of one job of a claim, if it is in one and still claimed under that epoch: how many children it stands for that
-- are not counted, and whether it has written nothing. Walks the primary key.
select parent, branch, coalesce(items, 1) - coalesce(tallied, 0), rev = 0
from windlass_jobs where id = ?1 and epoch = ?2 and state = 0 and branch is not null
