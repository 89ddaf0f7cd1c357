-- Lets a schedule rest, or takes that back.
update schedules set paused_at = $2::int8, paused_by = $3::text, paused_note = $4::text, next_at = $5::int8
where id = $1
