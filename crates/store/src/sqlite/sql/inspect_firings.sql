-- What a schedule fired, newest first.
select f.tick, f.job from windlass_schedules s join windlass_firings f on f.schedule = s.id where s.name = ?1 order by f.tick desc limit ?2
