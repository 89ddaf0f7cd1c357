-- Adds missed ticks to the last summary of the same reason, if nothing fired since.
update misses set last = ?3, count = count + ?4, at_least = at_least or ?5
where schedule = ?1 and why = ?2
  and at = (select max(o.at) from misses o where o.schedule = ?1)
  and not exists (select 1 from firings f where f.schedule = ?1 and f.tick > misses.last)
