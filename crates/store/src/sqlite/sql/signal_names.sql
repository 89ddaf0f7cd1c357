-- The names of the signals in an inbox. Walks the primary key.
select name from windlass_signals where job = ?1
