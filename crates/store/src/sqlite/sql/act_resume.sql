-- Forgets that a job is paused.
delete from windlass_pauses where job = ?1
