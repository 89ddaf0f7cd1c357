-- When the next timer is due, when the next tick is, and whether jobs wait to be put in.
select (select min(due_at) from windlass_timers),
       (select min(next_at) from windlass_schedules where next_at is not null and paused_at is null),
       exists (select 1 from windlass_arrivals)
