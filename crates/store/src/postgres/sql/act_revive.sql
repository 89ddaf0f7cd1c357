-- Brings failed and cancelled jobs back to life, with their counters reset and their deadline as far away as at first.
with wrote as (
    update jobs j
    set state = 0, trouble = null, reason = null, finished_at = null, attempts = 0, deaths = 0, crashes = 0,
        suspect = false, spent = null, epoch = j.epoch + 1, hold = null, due_at = $2::int8,
        place = case when j.serial is not null then $2 end,
        deadline_at = case when j.deadline_at is not null
                      then least($2 + greatest(j.deadline_at - j.submitted_at, 0), $3::int8) end
    where j.id = any($1::uuid[]) and j.state in (2, 3)
    returning j.id, j.deadline_at
), timed as (
    insert into timers (due_at, job, what) select deadline_at, id, 1 from wrote where deadline_at is not null
)
insert into gates (queue, writer, version)
select 0, $4::int8, (random() * 1e12)::int8 where exists (select from wrote where deadline_at is not null)
on conflict (queue, writer) do update set version = gates.version + 1
