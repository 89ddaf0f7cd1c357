-- Declares a worker dead.
update workers set life = 1 where id = ?1 and life = 0
