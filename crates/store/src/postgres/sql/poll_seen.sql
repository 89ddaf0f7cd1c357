-- What is to be seen of some branches, in their order: how much was spawned, what is waited for, what was seen before, how
-- children have ended; and how many are claimed, and how many of these have written nothing, as the claims say, which are few.
-- Walks the primary keys of branches, tallies and jobs (`offset 0` keeps it from walking all children instead).
with claimed as materialized (
    select j.parent, j.branch, coalesce(j.items, 1) - coalesce(j.tallied, 0) as items, j.rev
    from claims c cross join lateral unnest(c.jobs, c.epochs) as p (id, epoch)
    cross join lateral (select * from jobs where id = p.id and epoch = p.epoch and state = 0 offset 0) j
    where j.branch is not null and j.parent = any($1::uuid[])
)
select b.job, b.number, b.spawned, b.watch, b.poll, t.started, t.done, t.failed, t.cancelled, c.claimed, c.begun
from unnest($1, $2::int8[]) with ordinality as k (job, number, place)
join branches b on b.job = k.job and b.number = k.number
cross join lateral (
    select coalesce(sum(started), 0)::int8 as started, coalesce(sum(done), 0)::int8 as done,
           coalesce(sum(failed), 0)::int8 as failed, coalesce(sum(cancelled), 0)::int8 as cancelled
    from tallies where job = b.job and branch = b.number
) t
cross join lateral (
    select coalesce(sum(items), 0)::int8 as claimed, coalesce(sum(items) filter (where rev = 0), 0)::int8 as begun
    from claimed where parent = b.job and branch = b.number
) c
order by k.place
