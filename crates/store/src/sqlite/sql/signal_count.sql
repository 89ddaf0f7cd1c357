-- How many signals are in an inbox. Walks the primary key.
select count(*) from windlass_signals where job = ?1
