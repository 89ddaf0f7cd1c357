-- Moves schedules on.
update schedules s set next_at = n.next_at, last_job = coalesce(n.last_job, s.last_job)
from unnest($1::int4[], $2::int8[], $3::uuid[]) as n (id, next_at, last_job)
where s.id = n.id
