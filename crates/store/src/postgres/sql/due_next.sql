-- When the next timer is due, the store's clock, and whether jobs wait to be put in.
select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8), (select min(due_at) from timers),
       exists (select from arrivals)
