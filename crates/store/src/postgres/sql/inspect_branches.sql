-- The branches of a job, by number, with the sums of what has ended in them. Walks the primary keys of branches and tallies.
select b.number, b.name, b.spawns, b.cursor_codec, b.cursor, b.sealed, b.cut, b.spawned, b.watch, b.goal, b.opened_at,
       b.merged_at, b.poll, b.poll_at, t.started, t.done, t.failed, t.cancelled
from branches b
cross join lateral (
    select coalesce(sum(started), 0)::int8 as started, coalesce(sum(done), 0)::int8 as done,
           coalesce(sum(failed), 0)::int8 as failed, coalesce(sum(cancelled), 0)::int8 as cancelled
    from tallies where job = b.job and branch = b.number
) t
where b.job = $1::uuid
order by b.number
