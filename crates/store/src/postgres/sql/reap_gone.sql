-- Dead workers with nothing left to walk are gone; answers whether others are left.
with gone as (
    update workers set life = 2
    where life = 1 and not exists (select 1 from claims c where c.worker = workers.id)
    returning id
)
select exists (select 1 from workers where life = 1 and id not in (select id from gone))
