-- The names of the signals in an inbox, but those that were set aside. Walks the primary key.
select name from windlass_signals where job = ?1 and aside is null
