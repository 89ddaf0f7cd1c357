-- Brings failed and cancelled jobs back to life, with their counters reset and their deadline as far away as at first.
-- Whatever an earlier life left behind is forgotten.
with old as materialized (
    select j.id, j.due_at, j.deadline_at from jobs j where j.id = any($1::uuid[]) and j.state in (2, 3)
), wrote as (
    update jobs j
    set state = 0, trouble = null, reason = null, finished_at = null, attempts = 0, deaths = 0, crashes = 0,
        suspect = false, spent = null, epoch = j.epoch + 1, hold = null, parked = null, run = 0, due_at = $2::int8,
        unwind = null, undo = case when j.undo is not null then true end,
        place = case when j.serial is not null then $2 end,
        deadline_at = case when j.deadline_at is not null
                      then least($2 + greatest(j.deadline_at - j.submitted_at, 0), $3::int8) end
    where j.id = any($1::uuid[]) and j.state in (2, 3)
    returning j.id, j.deadline_at
), unpaused as (
    delete from pauses p using old w where p.job = w.id
), untold as (
    delete from orders o using old w where o.job = w.id
), timed as (
    insert into timers (due_at, job, what) select deadline_at, id, 1 from wrote where deadline_at is not null
    on conflict do nothing
)
insert into gates (queue, writer, version)
select 0, $4::int8, (random() * 1e12)::int8 where exists (select from wrote where deadline_at is not null)
on conflict (queue, writer) do update set version = gates.version + 1
