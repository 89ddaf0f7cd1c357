-- Whether there is more to walk.
select exists (select 1 from workers where life = 1)
