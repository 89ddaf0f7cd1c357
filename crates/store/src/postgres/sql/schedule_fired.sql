-- Notes what schedules fired: a tick fires once.
insert into firings (schedule, tick, job)
select * from unnest($1::int4[], $2::int8[], $3::uuid[]) on conflict do nothing
