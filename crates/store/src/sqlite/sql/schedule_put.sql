-- Makes or changes a schedule.
insert into windlass_schedules (name, spec, codec, input, next_at) values (?1, ?2, ?3, ?4, ?5)
on conflict (name) do update
set spec = excluded.spec, codec = excluded.codec, input = excluded.input, next_at = excluded.next_at
