-- Deletes the payloads of a job that are not in its row.
delete from windlass_payloads where job = ?1
