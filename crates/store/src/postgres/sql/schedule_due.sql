-- Locks schedules that are due, a bounded batch; passes over those that another process is firing.
select id, spec, codec, input, next_at, last_job from schedules
where next_at <= $1 and next_at is not null and paused_at is null
order by next_at
limit $2
for update skip locked
