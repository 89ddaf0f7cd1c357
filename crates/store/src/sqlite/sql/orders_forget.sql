-- Forgets that a job was told to end.
delete from windlass_orders where job = ?1
returning deadline_at, author, note
