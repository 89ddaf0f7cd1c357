-- Resumes a queue, if it is paused.
update windlass_queues set paused_at = null, paused_by = null, paused_note = null
where name = ?1 and paused_at is not null
returning id
