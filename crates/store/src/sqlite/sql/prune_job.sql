-- Deletes a job; its key is free.
delete from jobs where id = ?1
