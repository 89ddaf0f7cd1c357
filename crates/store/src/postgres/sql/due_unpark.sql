-- Ends the waits of parked jobs whose time is over.
update jobs set parked = null where id = any($1::uuid[])
