-- Numbers for lanes.
insert into lanes (queue, kind, version)
select distinct q.id, k.id, n.version from unnest($1::text[], $2::text[], $3::int4[]) as n (queue, kind, version)
join queues q on q.name = n.queue join kinds k on k.name = n.kind
order by 1, 2, 3
on conflict do nothing
