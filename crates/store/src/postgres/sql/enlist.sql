-- Takes a worker on, unless the name is taken.
insert into workers (id, name, beacon, lease_until)
values ($2, $3, $4, coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) + $5::int8)
on conflict do nothing
