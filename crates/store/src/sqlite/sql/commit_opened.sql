-- Notes that a job has branches, which are to be seen to when it ends. Walks the primary key.
update windlass_jobs set branched = 1 where id = ?1
