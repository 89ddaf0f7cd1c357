-- Execution::gates, and the end of every verb that makes jobs ready or sets timers. Few rows: one per queue, since there is one
-- writer at a time; PostgreSQL has one per queue and connection.

-- name: versions
-- Reads the versions of all gates, and the newest arrival for the gate of timers (0). Reads the whole table, which is short.
select queue, version, 0 from windlass_gates
union all select 0, 0, coalesce(max(seq), 0) from windlass_arrivals

-- name: bump
-- Moves the gate of a queue. Walks the primary key.
insert into windlass_gates (queue, writer, version) values (?1, ?2, ?3)
on conflict (queue, writer) do update set version = version + 1
