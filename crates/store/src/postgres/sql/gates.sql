-- name: versions
-- The versions of gates, summed over their writers. The timers' gate (0) is another while jobs wait to be put in.
select q.queue, coalesce((select sum(g.version) from gates g where g.queue = q.queue), 0)::int8
                + case when q.queue = 0 then coalesce((select max(seq) from arrivals), 0) else 0 end
from unnest($1::int4[]) as q (queue)

-- name: bump_queues
-- Moves the gates of queues.
insert into gates (queue, writer, version)
select q, $2::int8, (random() * 1e12)::int8 from unnest($1::int4[]) as q
on conflict (queue, writer) do update set version = gates.version + 1
