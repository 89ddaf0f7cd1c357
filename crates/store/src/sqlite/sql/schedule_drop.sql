-- Forgets a schedule. PostgreSQL does it in one statement with the next two.
delete from windlass_schedules where id = ?1
