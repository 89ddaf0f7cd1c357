-- When the next timer or tick is due, the store's clock, whether jobs wait to be put in, and whether a tick is due.
select c.now,
       least((select min(due_at) from timers),
             (select min(next_at) from schedules where next_at is not null and paused_at is null)),
       exists (select from arrivals),
       exists (select from schedules where next_at <= c.now and next_at is not null and paused_at is null)
from (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now) c
