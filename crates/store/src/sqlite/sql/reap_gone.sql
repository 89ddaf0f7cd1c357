-- Dead workers with nothing left to walk are gone.
update windlass_workers as workers set life = 2 where life = 1 and not exists (select 1 from windlass_claims where worker = workers.id)
