-- Pauses a queue, unless it is.
update windlass_queues set paused_at = ?2, paused_by = ?3, paused_note = ?4 where name = ?1 and paused_at is null
