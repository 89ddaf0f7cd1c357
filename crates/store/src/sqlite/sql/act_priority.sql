-- Gives a job another priority.
update jobs set priority = ?2 where id = ?1
