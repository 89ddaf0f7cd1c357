-- Keeps a payload that is too large for its job's row. PostgreSQL does that by itself.
insert into windlass_payloads (job, what, bytes) values (?1, ?2, ?3)
on conflict (job, what) do update set bytes = ?3
