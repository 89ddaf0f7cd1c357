-- Whether the worker serves and the number is new, the queue is paused, and the lanes (a JSON array) are empty; and the
-- newest lane. Answers no row for a worker that is not there. Walks the primary keys.
select w.life = 0 and w.lease_until > ?4
       and not exists (select 1 from windlass_claims c where c.worker = w.id and c.number = ?2),
       exists (select 1 from windlass_queues q where q.id = ?5 and q.paused_at is not null),
       not exists (select 1 from json_each(?3) l where exists (select 1 from windlass_ready r where r.lane = l.value)),
       coalesce((select max(id) from windlass_lanes), 0)
from windlass_workers w where w.id = ?1
