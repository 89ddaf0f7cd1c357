-- Moves the gates of queues.
insert into gates (queue, writer, version)
select q, $2::int8, (random() * 1e12)::int8 from unnest($1::int4[]) as q
on conflict (queue, writer) do update set version = gates.version + 1
