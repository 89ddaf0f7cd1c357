-- Moves the gates of the queues in which jobs wait for a rate limit.
insert into gates (queue, writer, version)
select l.queue, $2::int8, (random() * 1e12)::int8 from lanes l join buckets b on b.id = l.bucket
where b.name = $1 and (exists (select from ready r where r.lane = l.id) or exists (select from ready r where r.lane = -l.id))
group by l.queue
on conflict (queue, writer) do update set version = gates.version + 1
