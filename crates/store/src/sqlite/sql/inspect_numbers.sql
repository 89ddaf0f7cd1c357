-- The branches that the children of a job are in, found by jumping from one to the next along jobs_parent. Their parent may be
-- gone, and its branches with it.
with recursive numbers (number) as (
    select min(branch) from windlass_jobs where parent = ?1 and branch is not null
    union all
    select (select min(j.branch) from windlass_jobs j where j.parent = ?1 and j.branch > n.number)
    from numbers n where n.number is not null
)
select number from numbers where number is not null
