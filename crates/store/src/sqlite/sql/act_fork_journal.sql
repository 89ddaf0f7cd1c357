-- Gives a fork (?1) what the journal of the job it goes on from (?2) says before a place. Walks the primary key.
insert into windlass_journal (job, seq, op, mark, name, key, line, at, codec, payload)
select ?1, seq, op, mark, name, key, line, at, codec, payload from windlass_journal where job = ?2 and seq < ?3
