-- Lets a schedule rest, or takes that back.
update windlass_schedules set paused_at = ?2, paused_by = ?3, paused_note = ?4, next_at = ?5 where id = ?1
