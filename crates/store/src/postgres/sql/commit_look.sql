-- Of some branches those that their jobs watch, with what they watch for and the sum of what has ended in them. Sent after
-- the commit of whoever counted: of two that commit at once, the later one sees what both have counted. Walks the primary
-- keys of branches and tallies; locks nothing.
select b.job, b.number, b.watch, t.started, t.done, t.failed, t.cancelled
from unnest($1::uuid[], $2::int8[]) as k (job, number)
join branches b on b.job = k.job and b.number = k.number and b.watch is not null
cross join lateral (
    select coalesce(sum(started), 0)::int8 as started, coalesce(sum(done), 0)::int8 as done,
           coalesce(sum(failed), 0)::int8 as failed, coalesce(sum(cancelled), 0)::int8 as cancelled
    from tallies where job = b.job and branch = b.number
) t
