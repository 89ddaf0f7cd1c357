-- Numbers for lanes.
insert into lanes (queue, kind, version, bucket)
select distinct q.id, k.id, n.version, n.bucket
from unnest($1::text[], $2::text[], $3::int4[], $4::int4[]) as n (queue, kind, version, bucket)
join queues q on q.name = n.queue join kinds k on k.name = n.kind
order by 1, 2, 3, 4
on conflict do nothing
