-- Forgets what schedules fired and missed before $1, a bounded number each. Walks the primary keys.
with old as (
    delete from firings where ctid = any (array(
        select f.ctid from schedules s
        cross join lateral (select f.ctid from firings f where f.schedule = s.id and f.tick < $1::int8 limit 1000) f
    ))
)
delete from misses where ctid = any (array(
    select m.ctid from schedules s
    cross join lateral (select m.ctid from misses m where m.schedule = s.id and m.at < $1 and m.last < $1 limit 1000) m
))
