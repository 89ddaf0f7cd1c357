-- When the next timer is due, and the store's clock.
select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8), (select min(due_at) from timers)
