-- Lengthens a lease and says whether there is someone to reap. A dead worker stays dead. Forgets settled claims, unless one of
-- their jobs is still claimed (its outcome was lost), and notes which no longer run alone.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), held as (
    update workers w set lease_until = clock.now + $3::int8 from clock where w.id = $2 and w.life = 0 returning w.id
), settled as (
    delete from claims where worker = $2 and number = any($4::int8[])
      and not exists (select from unnest(claims.jobs, claims.epochs) as p (id, epoch)
                      where (select j.state from jobs j where j.id = p.id and j.epoch = p.epoch) = 0)
    returning number
), joined as (
    update claims set alone = false
    where worker = $2 and number = any($5::int8[]) and number <> all (array(select number from settled))
)
select exists (select from workers w, clock where w.id <> $2 and ((w.life = 0 and w.lease_until <= clock.now) or w.life = 1)),
       array(select c.number from claims c
             where c.worker = $2 and c.number <> all (array(select number from settled)) order by c.number)
from held
