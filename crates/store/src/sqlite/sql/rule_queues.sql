-- Queues in which jobs wait for a rate limit.
select distinct l.queue from windlass_lanes l
where l.bucket = ?1 and exists (select 1 from windlass_ready r where r.lane in (l.id, -l.id))
