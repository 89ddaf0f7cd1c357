-- What a schedule missed, newest first.
select m.at, m.first, m.last, m.count, m.at_least, m.why
from windlass_schedules s join windlass_misses m on m.schedule = s.id where s.name = ?1 order by m.at desc limit ?2
