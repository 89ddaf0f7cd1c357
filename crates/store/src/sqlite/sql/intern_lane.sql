-- A number for a lane; bucket 0 is no rate limit.
insert into windlass_lanes (queue, kind, version, bucket)
select q.id, k.id, ?3, ?4 from windlass_queues q, windlass_kinds k where q.name = ?1 and k.name = ?2
on conflict do nothing
