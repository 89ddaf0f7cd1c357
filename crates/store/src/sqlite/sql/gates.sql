-- name: versions
-- The versions of all gates; and for the timers' gate, the newest job that waits to be put in.
select queue, version, 0 from windlass_gates
union all select 0, 0, coalesce(max(seq), 0) from windlass_arrivals

-- name: bump
-- Moves the gate of a queue.
insert into windlass_gates (queue, writer, version) values (?1, ?2, ?3)
on conflict (queue, writer) do update set version = version + 1
