-- All queues, whether they are paused, and since when the first of each of their lanes is due.
select q.name, q.paused_at, q.paused_by, q.paused_note,
       (select min(j.due_at) from lanes l
        cross join lateral (
            (select r.job from ready r where r.lane = l.id order by r.rank, r.job limit 1)
            union all
            (select r.job from ready r where r.lane = -l.id order by r.rank, r.job limit 1)
        ) h
        join jobs j on j.id = h.job
        where l.queue = q.id)
from queues q order by q.name collate "C"
