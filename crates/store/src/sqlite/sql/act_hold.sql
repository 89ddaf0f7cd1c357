-- Says whether a job is to be set aside when it would next be ready (1), is aside (2), or neither (null).
update windlass_jobs set hold = ?2 where id = ?1
