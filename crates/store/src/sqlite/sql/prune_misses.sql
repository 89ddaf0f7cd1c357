-- Forgets what schedules missed before a moment.
delete from misses where schedule in (select id from schedules) and at < ?1 and last < ?1
