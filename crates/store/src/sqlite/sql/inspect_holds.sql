-- By whom a job is paused, was told to end, and has its queue paused. Walks primary keys.
select p.at, p.author, p.note, o.deadline_at, o.author, o.note, q.paused_at, q.paused_by, q.paused_note
from windlass_lanes l join windlass_queues q on q.id = l.queue
left join windlass_pauses p on p.job = ?1
left join windlass_orders o on o.job = ?1
where l.id = ?2
