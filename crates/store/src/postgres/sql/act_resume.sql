-- Takes pauses back. What was told to end meanwhile stays held.
with gone as (
    delete from pauses where job = any($1::uuid[]) returning job
)
update jobs j set hold = null from gone g
where j.id = g.job and not exists (select from orders o where o.job = j.id)
