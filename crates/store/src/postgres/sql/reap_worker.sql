-- Declares workers dead: those named and, if asked, those whose lease has run out. Waits for claims under way,
-- so that none of them is missed afterwards.
update workers set life = 1 where id = any (array(
    select w.id from workers w
    where w.life = 0 and (w.id = any($2::int8[]) or ($3 and w.lease_until <= coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8)))
    order by w.id
    for update
))
returning id
