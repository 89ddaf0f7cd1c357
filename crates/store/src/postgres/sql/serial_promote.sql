-- Hands free slots of the keys of some jobs to the first in line: they enter the ready set, and its gates move. Walks
-- the primary keys of line and holders. Needs serial_lock before. Answers how many entered.
with free as materialized (
    select s.id, s.slots - (select count(*) from holders h where h.serial = s.id) as n
    from serials s
    where s.id = any (array(select distinct j.serial from jobs j where j.id = any($1::uuid[]) and j.serial is not null))
), gone as (
    delete from line where ctid = any (array(
        select h.ctid from free
        cross join lateral (
            select l.ctid from line l where l.serial = free.id order by l.place, l.job limit greatest(free.n, 0)
        ) h
    ))
    returning serial, job
), held as (
    insert into holders (serial, job) select serial, job from gone
), who as materialized (
    select j.id, j.lane, j.suspect, j.due_at + j.priority * $2::int8 as rank from gone join jobs j on j.id = gone.job
), to_ready as (
    insert into ready (lane, rank, job) select case when suspect then -lane else lane end, rank, id from who
), to_gates as (
    insert into gates (queue, writer, version)
    select l.queue, $3::int8, (random() * 1e12)::int8 from lanes l where l.id in (select lane from who)
    group by l.queue
    on conflict (queue, writer) do update set version = gates.version + 1
)
select count(*) from who
