-- The life and lease of a worker that claims, the newest lane, and whether the queue is paused. PostgreSQL locks the
-- row for share within claim; here the write transaction is lock enough.
select w.life, w.lease_until, coalesce((select max(id) from windlass_lanes), 0),
       exists (select 1 from windlass_queues q where q.id = ?2 and q.paused_at is not null)
from windlass_workers w where w.id = ?1
