-- Counts the children of a branch anew: done, failed, cancelled, live. Walks jobs_parent, and all rows of the branch.
select coalesce(sum(coalesce(tallied, 0)), 0)
           + coalesce(sum(coalesce(items, 1) - coalesce(tallied, 0)) filter (where state = 1), 0),
       coalesce(sum(coalesce(items, 1) - coalesce(tallied, 0)) filter (where state = 2), 0),
       coalesce(sum(coalesce(items, 1) - coalesce(tallied, 0)) filter (where state = 3), 0),
       coalesce(sum(coalesce(items, 1) - coalesce(tallied, 0)) filter (where state = 0), 0)
from windlass_jobs where parent = ?1 and branch = ?2
