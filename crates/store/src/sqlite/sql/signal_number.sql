-- Notes the number of the last signal of a job.
update windlass_jobs set heard = ?2 where id = ?1
