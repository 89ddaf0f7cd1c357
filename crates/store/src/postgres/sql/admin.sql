-- name: queue_paused_by
-- By whom a queue is paused.
select paused_by from queues where name = $1 and paused_at is not null

-- name: pause_queue
-- Pauses or resumes a queue; answers nothing if it was so before.
update queues set paused_at = $2::int8, paused_by = $3::text, paused_note = $4::text
where name = $1 and (paused_at is null) <> ($2::int8 is null)
returning id
