-- Forgets all claims of a worker, and answers what was in them.
delete from claims where worker = $1 returning jobs, epochs
