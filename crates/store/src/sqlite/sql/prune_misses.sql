-- Forgets what schedules missed before a moment.
delete from windlass_misses where schedule in (select id from windlass_schedules) and at < ?1 and last < ?1
