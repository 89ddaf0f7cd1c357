-- Ends a worker's service, if it was not declared dead before. Waits for claims of it under way.
update workers set life = 2 where id = $1 and life = 0
