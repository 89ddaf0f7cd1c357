-- Ends a worker's service, if it was not declared dead before.
update windlass_workers set life = 2 where id = ?1 and life = 0
