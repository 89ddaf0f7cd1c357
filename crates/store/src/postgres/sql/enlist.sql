-- Takes a worker on, unless the name is taken; forgets workers that have been gone for a week.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), forgotten as (
    delete from workers w using clock where w.life = 2 and w.lease_until < clock.now - 604800000000 and w.id <> $2
)
insert into workers (id, name, beacon, lease_until, serves)
select $2, $3, $4, clock.now + $5::int8, $6 from clock
on conflict do nothing
