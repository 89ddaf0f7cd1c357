-- Sets a job aside that would be ready otherwise. PostgreSQL does it within the statements that put jobs back.
update windlass_jobs set hold = 2 where id = ?1
