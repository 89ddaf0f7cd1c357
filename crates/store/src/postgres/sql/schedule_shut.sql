-- Lets a schedule rest that cannot be read.
update schedules set paused_at = coalesce($2::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8), paused_by = 'windlass',
    paused_note = $3::text
where id = $1
