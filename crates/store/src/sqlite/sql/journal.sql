-- Execution::commit, as far as journals and contexts of workflows go. Sent after the guarded update of the job has written its row.

-- name: append
-- Adds an entry to a journal. Its position must be free: a taken one is refused.
insert into windlass_journal (job, seq, call_kind, event, name, key, source_line, at, codec, payload)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)

-- name: forget_entries
-- Deletes an entry that later ones have made unnecessary. Walks the primary key.
delete from windlass_journal where job = ?1 and seq = ?2

-- name: clear
-- Deletes the journal of a workflow that continues as new. Walks the primary key.
delete from windlass_journal where job = ?1

-- name: set_context
-- Writes a value of a context. Walks the primary key.
insert into windlass_context (job, name, codec, value) values (?1, ?2, ?3, ?4)
on conflict (job, name) do update set codec = ?3, value = ?4
