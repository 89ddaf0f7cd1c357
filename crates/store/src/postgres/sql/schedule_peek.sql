-- Schedules that are due, a bounded batch, as schedule_due locks them a moment later.
select id, spec, codec, input, next_at, last_job from schedules
where next_at <= coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8)
  and next_at is not null and paused_at is null
order by next_at
limit $2
