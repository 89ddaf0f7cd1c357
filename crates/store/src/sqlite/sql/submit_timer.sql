-- Sets a timer. PostgreSQL does it within submit.
insert into windlass_timers (due_at, job, what) values (?1, ?2, ?3)
