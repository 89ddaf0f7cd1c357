-- Control::administer, as far as queues go. Writes queues. PostgreSQL pauses and resumes by one statement.

-- name: pause_queue
-- Pauses a queue, unless it is paused. Walks the unique index of names.
update windlass_queues set paused_at = ?2, paused_by = ?3, paused_note = ?4 where name = ?1 and paused_at is null

-- name: resume_queue
-- Resumes a queue if it is paused, and returns its id. Walks the unique index of names.
update windlass_queues set paused_at = null, paused_by = null, paused_note = null
where name = ?1 and paused_at is not null
returning id

-- name: queue_paused_by
-- Reads who paused a queue. Walks the unique index of names.
select paused_by from windlass_queues where name = ?1 and paused_at is not null
