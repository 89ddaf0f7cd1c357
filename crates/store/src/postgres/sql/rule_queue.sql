-- Pauses or resumes a queue; answers nothing if it was so before.
update queues set paused_at = $2::int8, paused_by = $3::text, paused_note = $4::text
where name = $1 and (paused_at is null) <> ($2::int8 is null)
returning id
