-- Forgets that a job is paused.
delete from pauses where job = ?1
