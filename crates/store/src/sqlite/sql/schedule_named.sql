-- One schedule.
select id, spec, codec, input, next_at, last_job, paused_by from windlass_schedules where name = ?1
