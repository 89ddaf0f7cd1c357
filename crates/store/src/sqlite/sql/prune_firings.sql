-- Forgets what schedules fired before a moment. Walks the primary key once per schedule.
delete from firings where schedule in (select id from schedules) and tick < ?1
