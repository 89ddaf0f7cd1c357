-- Counts the ends in a branch anew. Walks jobs_parent, and all rows of the branch.
select coalesce(sum(coalesce(tallied, 0)), 0)
           + coalesce(sum(coalesce(items, 1) - coalesce(tallied, 0)) filter (where state = 1), 0),
       coalesce(sum(coalesce(items, 1) - coalesce(tallied, 0)) filter (where state = 2), 0),
       coalesce(sum(coalesce(items, 1) - coalesce(tallied, 0)) filter (where state = 3), 0)
from windlass_jobs where parent = ?1 and branch = ?2
