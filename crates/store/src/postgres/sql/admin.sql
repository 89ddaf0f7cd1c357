-- Control::administer, as far as queues go. Writes queues. SQLite has a statement each for pausing and resuming.

-- name: pause_or_resume_queue
-- Pauses a queue, or resumes it if $2 is null; returns no row if it was so before. Walks the unique index of names.
update queues set paused_at = $2::int8, paused_by = $3::text, paused_note = $4::text
where name = $1 and (paused_at is null) <> ($2::int8 is null)
returning id

-- name: queue_paused_by
-- Reads who paused a queue. Walks the unique index of names.
select paused_by from queues where name = $1 and paused_at is not null
