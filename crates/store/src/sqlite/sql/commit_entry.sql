-- Adds an entry to a journal. Its place is its own: one that is taken is refused.
insert into windlass_journal (job, seq, op, mark, name, key, line, at, codec, payload)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
