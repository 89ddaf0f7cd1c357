-- name: add_kind
-- Numbers for kinds.
insert into kinds (name) select distinct n from unnest($1::text[]) n order by n on conflict do nothing

-- name: add_lane
-- Numbers for lanes.
insert into lanes (queue, kind, version, rate_limit)
select distinct q.id, k.id, n.version, n.rate_limit
from unnest($1::text[], $2::text[], $3::int4[], $4::int4[]) as n (queue, kind, version, rate_limit)
join queues q on q.name = n.queue join kinds k on k.name = n.kind
order by 1, 2, 3, 4
on conflict do nothing

-- name: add_queue
-- Numbers for queues.
insert into queues (name) select distinct n from unnest($1::text[]) n order by n on conflict do nothing

-- name: queues
-- All queues with their names.
select id, name from queues

-- name: lanes
-- All lanes with their names.
select l.id, l.queue, l.kind, q.name, k.name, l.version, l.rate_limit
from lanes l join queues q on q.id = l.queue join kinds k on k.id = l.kind
