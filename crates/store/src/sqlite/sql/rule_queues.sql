-- Queues in which jobs wait for a rate limit.
select distinct l.queue from lanes l
where l.bucket = ?1 and exists (select 1 from ready r where r.lane in (l.id, -l.id))
