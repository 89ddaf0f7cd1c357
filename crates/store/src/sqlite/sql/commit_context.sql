-- Keeps a value of a context.
insert into windlass_context (job, name, codec, value) values (?1, ?2, ?3, ?4)
on conflict (job, name) do update set codec = ?3, value = ?4
