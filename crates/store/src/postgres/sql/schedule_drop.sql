-- Forgets a schedule, with what it fired and missed.
with gone as (
    delete from schedules where name = $1 returning id
), unfired as (
    delete from firings f using gone g where f.schedule = g.id
), unmissed as (
    delete from misses m using gone g where m.schedule = g.id
)
select count(*) from gone
