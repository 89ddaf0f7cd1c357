-- name: add_kind
-- A number for a kind.
insert into windlass_kinds (name) values (?1) on conflict do nothing

-- name: add_lane
-- A number for a lane; bucket 0 is no rate limit.
insert into windlass_lanes (queue, kind, version, rate_limit)
select q.id, k.id, ?3, ?4 from windlass_queues q, windlass_kinds k where q.name = ?1 and k.name = ?2
on conflict do nothing

-- name: add_queue
-- A number for a queue.
insert into windlass_queues (name) values (?1) on conflict do nothing

-- name: queues
-- All queues with their names.
select id, name from windlass_queues

-- name: lanes
-- All lanes with their names.
select l.id, l.queue, l.kind, q.name, k.name, l.version, l.rate_limit
from windlass_lanes l join windlass_queues q on q.id = l.queue join windlass_kinds k on k.id = l.kind
