-- Takes a signal out of an inbox for good, because someone says so. The job is locked by an earlier statement. Walks the
-- primary key.
delete from signals where job = $1 and number = $2
