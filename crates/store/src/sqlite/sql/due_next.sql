-- When the next timer or tick is due, and whether jobs wait to be put in.
select (select min(at) from (
            select min(due_at) as at from windlass_timers
            union all select min(next_at) from windlass_schedules where next_at is not null and paused_at is null)),
       exists (select 1 from windlass_arrivals)
