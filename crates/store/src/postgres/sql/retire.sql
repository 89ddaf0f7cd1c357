-- Ends a worker's service, if it was not declared dead before. Waits for claims of it under way.
update workers set life = 2 where id = any (array(select w.id from workers w where w.id = $1 and w.life = 0 for update))
