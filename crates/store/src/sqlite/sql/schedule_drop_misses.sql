-- Forgets what a schedule missed.
delete from windlass_misses where schedule = ?1
