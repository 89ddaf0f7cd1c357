-- Declares a worker dead.
update windlass_workers set life = 1 where id = ?1 and life = 0
