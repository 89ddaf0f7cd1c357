-- Dead workers with nothing left to walk are gone.
update workers set life = 2 where life = 1 and not exists (select 1 from claims where worker = workers.id)
