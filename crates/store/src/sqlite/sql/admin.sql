-- name: pause_queue
-- Pauses a queue, unless it is.
update windlass_queues set paused_at = ?2, paused_by = ?3, paused_note = ?4 where name = ?1 and paused_at is null

-- name: queue_paused_by
-- Who paused a queue.
select paused_by from windlass_queues where name = ?1 and paused_at is not null

-- name: resume_queue
-- Resumes a queue, if it is paused.
update windlass_queues set paused_at = null, paused_by = null, paused_note = null
where name = ?1 and paused_at is not null
returning id
