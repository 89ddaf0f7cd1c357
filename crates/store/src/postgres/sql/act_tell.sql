-- Tells running jobs to end: whoever claimed one finds it among its orders, and the timer ends it if it does not.
with holder as materialized (
    select j.id, j.epoch, coalesce(h.worker, 0) as worker from jobs j
    left join lateral (
        select c.worker from claims c, unnest(c.jobs, c.epochs) as p (id, epoch)
        where p.id = j.id and p.epoch = j.epoch limit 1
    ) h on true
    where j.id = any($1::uuid[])
), held as (
    update jobs j set hold = 1 from holder h where j.id = h.id
), told as (
    insert into orders (job, worker, epoch, deadline_at, author, note)
    select id, worker, epoch, $2::int8, $3::text, $4::text from holder
), timed as (
    insert into timers (due_at, job, what) select $2, id, 2 from holder
)
insert into gates (queue, writer, version)
select q, $5::int8, (random() * 1e12)::int8 from unnest(array[-1, 0]) as q where exists (select from holder)
on conflict (queue, writer) do update set version = gates.version + 1
