-- Lets live jobs that are due, locked and not held enter: the ready set, or the line of their serial key if they have
-- none of its slots. Gates move for what became ready. Answers whether any stands in a line (then its keys are to be
-- settled).
with who as materialized (
    select j.id, j.lane, j.suspect, j.serial, j.place, j.due_at + j.priority * $2::int8 as rank,
           j.serial is null
           or (select true from holders h where h.serial = j.serial and h.job = j.id) is not null as free
    from jobs j where j.id = any($1::uuid[]) and j.state = 0 and j.hold is null
), to_line as (
    insert into line (serial, place, job) select serial, place, id from who where not free on conflict do nothing
), to_ready as (
    insert into ready (lane, rank, job)
    select case when suspect then -lane else lane end, rank, id from who where free on conflict do nothing
), to_gates as (
    insert into gates (queue, writer, version)
    select l.queue, $3::int8, (random() * 1e12)::int8 from lanes l where l.id in (select lane from who where free)
    group by l.queue
    on conflict (queue, writer) do update set version = gates.version + 1
)
select exists (select from who where not free)
