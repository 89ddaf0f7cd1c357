-- All schedules.
select spec, codec, input, next_at, paused_at, paused_by, paused_note, last_job from schedules order by name collate "C"
