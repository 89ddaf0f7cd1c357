-- Every verb that takes names: gives numbers to queues, kinds and lanes. Rows are never changed or deleted.

-- name: add_queue
-- Adds a queue unless it exists. Walks the unique index of names.
insert into windlass_queues (name) values (?1) on conflict do nothing

-- name: add_kind
-- Adds a kind unless it exists. Walks the unique index of names.
insert into windlass_kinds (name) values (?1) on conflict do nothing

-- name: add_lane
-- Adds a lane unless it exists; rate limit 0 is none. Walks the unique indexes.
insert into windlass_lanes (queue, kind, version, rate_limit)
select q.id, k.id, ?3, ?4 from windlass_queues q, windlass_kinds k where q.name = ?1 and k.name = ?2
on conflict do nothing

-- name: queues
-- Reads all queues.
select id, name from windlass_queues

-- name: lanes
-- Reads all lanes with the names they stand for.
select l.id, l.queue, l.kind, q.name, k.name, l.version, l.rate_limit
from windlass_lanes l join windlass_queues q on q.id = l.queue join windlass_kinds k on k.id = l.kind
