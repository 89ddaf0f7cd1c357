-- Takes a signal out of an inbox for good, because someone says so. Walks the primary key.
delete from windlass_signals where job = ?1 and number = ?2
