-- Adds missed ticks to the last summary of the same reason, if nothing fired since.
update windlass_misses as misses set last = ?3, count = count + ?4, at_least = at_least or ?5
where schedule = ?1 and why = ?2
  and at = (select max(o.at) from windlass_misses o where o.schedule = ?1)
  and not exists (select 1 from windlass_firings f where f.schedule = ?1 and f.tick > misses.last)
