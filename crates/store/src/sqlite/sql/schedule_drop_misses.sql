-- Forgets what a schedule missed.
delete from misses where schedule = ?1
