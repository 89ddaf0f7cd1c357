-- Forgets a timer that no longer matters.
delete from windlass_timers where due_at = ?1 and job = ?2 and what = ?3
