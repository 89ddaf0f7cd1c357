-- Lets a schedule rest that cannot be read.
update windlass_schedules set paused_at = ?2, paused_by = 'windlass', paused_note = ?3 where id = ?1
