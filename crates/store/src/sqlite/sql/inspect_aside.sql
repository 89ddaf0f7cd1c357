-- The signals of a job that were set aside, oldest first, a bounded number. Walks the primary key.
select number, name, at, aside from windlass_signals where job = ?1 and aside is not null order by number limit ?2
