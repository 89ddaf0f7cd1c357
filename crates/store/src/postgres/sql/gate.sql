-- The versions of gates, summed over their writers. The timers' gate (0) is another while jobs wait to be put in.
select q.queue, coalesce((select sum(g.version) from gates g where g.queue = q.queue), 0)::int8
                + case when q.queue = 0 then coalesce((select max(seq) from arrivals), 0) else 0 end
from unnest($1::int4[]) as q (queue)
