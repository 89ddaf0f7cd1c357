-- Deletes the payloads of a job that are not in its row.
delete from payloads where job = ?1
