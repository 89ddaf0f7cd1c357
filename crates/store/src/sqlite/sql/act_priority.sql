-- Gives a job another priority.
update windlass_jobs set priority = ?2 where id = ?1
