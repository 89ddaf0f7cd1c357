-- Every verb that takes names: gives numbers to queues, kinds and lanes, and commits them before they are used. Rows are never changed or
-- deleted. Names are sorted, so that two batches with the same names do not wait for each other.

-- name: add_queue
-- Adds queues unless they exist. Walks the unique index of names.
insert into queues (name) select distinct n from unnest($1::text[]) n order by n on conflict do nothing

-- name: add_kind
-- Adds kinds unless they exist. Walks the unique index of names.
insert into kinds (name) select distinct n from unnest($1::text[]) n order by n on conflict do nothing

-- name: add_lane
-- Adds lanes unless they exist; rate limit 0 is none. Walks the unique indexes.
insert into lanes (queue, kind, version, rate_limit)
select distinct q.id, k.id, n.version, n.rate_limit
from unnest($1::text[], $2::text[], $3::int4[], $4::int4[]) as n (queue, kind, version, rate_limit)
join queues q on q.name = n.queue join kinds k on k.name = n.kind
order by 1, 2, 3, 4
on conflict do nothing

-- name: queues
-- Reads all queues.
select id, name from queues

-- name: lanes
-- Reads all lanes with the names they stand for.
select l.id, l.queue, l.kind, q.name, k.name, l.version, l.rate_limit
from lanes l join queues q on q.id = l.queue join kinds k on k.id = l.kind
