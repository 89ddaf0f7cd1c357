-- Puts a signal back that was set aside, where it stood. The job is locked by an earlier statement; whether the signal ends
-- its wait is for signal_wake to say. Walks the primary key.
update signals set aside = null where job = $1 and number = $2
