-- Adds missed ticks to the last summary of the same reason, if nothing fired since.
update misses m set last = $3::int8, count = m.count + $4::int8, at_least = m.at_least or $5::bool
where m.schedule = $1::int4 and m.why = $2::text
  and m.at = (select max(o.at) from misses o where o.schedule = $1)
  and not exists (select from firings f where f.schedule = $1 and f.tick > m.last)
