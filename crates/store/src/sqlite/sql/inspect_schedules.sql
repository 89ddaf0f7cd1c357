-- All schedules.
select id, spec, codec, input, next_at, last_job, paused_by, paused_at, paused_by, paused_note from windlass_schedules order by name
