-- Schedules that are due, a bounded batch. Walks schedules_next.
select id, spec, codec, input, next_at, last_job, paused_by from windlass_schedules
where next_at <= ?1 and next_at is not null and paused_at is null
order by next_at
limit ?2
