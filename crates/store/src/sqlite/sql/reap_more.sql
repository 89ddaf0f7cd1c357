-- Whether there is more to walk.
select exists (select 1 from windlass_workers where life = 1)
