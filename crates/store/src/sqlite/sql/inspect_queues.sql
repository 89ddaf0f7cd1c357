-- All queues, by whom they are paused, and when the first job of any of their lanes became due. Looks at one place of
-- each lane.
select q.name, q.paused_at, q.paused_by, q.paused_note,
       (select min((select j.due_at from windlass_ready r join windlass_jobs j on j.id = r.job
                    where r.lane = l.id * s.sign order by r.rank, r.job limit 1))
        from windlass_lanes l, (select 1 as sign union all select -1) s where l.queue = q.id)
from windlass_queues q order by q.name
