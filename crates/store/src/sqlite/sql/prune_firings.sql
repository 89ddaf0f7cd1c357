-- Forgets what schedules fired before a moment. Walks the primary key once per schedule.
delete from windlass_firings where schedule in (select id from windlass_schedules) and tick < ?1
