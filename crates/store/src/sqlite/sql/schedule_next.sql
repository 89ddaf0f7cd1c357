-- Moves a schedule on.
update windlass_schedules set next_at = ?2, last_job = ?3 where id = ?1
