-- Takes a signal out of an inbox: a step that was shown it has made progress. Walks the primary key.
delete from windlass_signals where job = ?1 and number = ?2
