-- Puts a signal into an inbox, behind the others. Walks the primary key.
insert into windlass_signals (job, number, name, at, codec, payload)
values (?1, coalesce((select max(s.number) from windlass_signals s where s.job = ?1), 0) + 1, ?2, ?3, ?4, ?5)
