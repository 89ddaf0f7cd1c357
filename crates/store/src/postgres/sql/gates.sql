-- Execution::gates, and every statement that makes jobs ready or sets timers. A gate is the sum of its rows, one per queue and connection
-- ($writer), so that two commits do not wait for each other. SQLite has one row per queue. Locks gates after ready and claims.

-- name: versions
-- Reads the versions of gates, summed over their writers. That of timers (0) differs while jobs wait to be admitted. Walks the primary
-- keys of gates and arrivals.
select q.queue, coalesce((select sum(g.version) from gates g where g.queue = q.queue), 0)::int8
                + case when q.queue = 0 then coalesce((select max(seq) from arrivals), 0) else 0 end
from unnest($1::int4[]) as q (queue)

-- name: bump
-- Moves the gates of queues. Walks the primary key.
insert into gates (queue, writer, version)
select q, $2::int8, {{first_version}} from unnest($1::int4[]) as q
{{or_raise}}

-- fragment: first_version
-- The version of a new row. Random, so that a row which was lost and made again does not repeat a version that was read before.
(random() * 1e12)::int8

-- fragment: or_raise
-- Raises the version of a row that exists.
on conflict (queue, writer) do update set version = gates.version + 1

-- fragment: bump_lanes(writer, lanes)
-- Moves the gates of the queues of lanes.
insert into gates (queue, writer, version)
select l.queue, {{writer}}::int8, {{first_version}} from lanes l where l.id in ({{lanes}}) group by l.queue
{{or_raise}}

-- fragment: bump_timers(writer, condition)
-- Moves the gate of timers (0) if a condition holds.
insert into gates (queue, writer, version)
select 0, {{writer}}::int8, {{first_version}} where {{condition}}
{{or_raise}}

-- fragment: bump_timers_and_lanes(writer, condition, lanes)
-- Both.
insert into gates (queue, writer, version)
select l.queue, {{writer}}::int8, {{first_version}} from lanes l where l.id in ({{lanes}}) group by l.queue
union all
select 0, {{writer}}, {{first_version}} where {{condition}}
{{or_raise}}
