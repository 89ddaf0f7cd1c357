-- name: clear
-- Forgets the journal of a job, which starts anew. Walks the primary key.
delete from windlass_journal where job = ?1

-- name: set_context
-- Keeps a value of a context.
insert into windlass_context (job, name, codec, value) values (?1, ?2, ?3, ?4)
on conflict (job, name) do update set codec = ?3, value = ?4

-- name: append
-- Adds an entry to a journal. Its place is its own: one that is taken is refused.
insert into windlass_journal (job, seq, op, mark, name, key, source_line, at, codec, payload)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)

-- name: forget
-- Forgets an entry of a journal that later ones have made needless. Walks the primary key.
delete from windlass_journal where job = ?1 and seq = ?2
