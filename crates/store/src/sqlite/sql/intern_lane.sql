-- A number for a lane.
insert into lanes (queue, kind, version)
select q.id, k.id, ?3 from queues q, kinds k where q.name = ?1 and k.name = ?2
on conflict do nothing
