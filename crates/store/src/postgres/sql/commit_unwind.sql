-- Notes that jobs are being unwound, those whose epoch and rev are their change's and whose claim is known: sent before the changes themselves,
-- and after the jobs are locked. Nothing ends them or holds them back any more: deadlines, pauses and orders are forgotten
-- (timers that are firing are passed over, and find nothing to do). Walks the primary keys of jobs and timers.
with wrote as (
    update jobs j set unwind = c.unwind, undo = false, hold = null
    from unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[], $6::text[]) as c (job, epoch, rev, worker, claim, unwind)
    where j.id = c.job and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
      and exists (select from claims k where k.worker = c.worker and k.number = c.claim)
    returning j.id, j.deadline_at
), unpaused as (
    delete from pauses p using wrote w where p.job = w.id
), untold as (
    delete from orders r using wrote w where r.job = w.id returning r.job, r.deadline_at
), timed as materialized (
    select w.deadline_at as due_at, w.id, 1 as what from wrote w where w.deadline_at is not null
    union all select r.deadline_at, r.job, 2 from untold r
)
delete from timers where ctid = any (array(
    select t.ctid from timed d join timers t on t.due_at = d.due_at and t.job = d.id and t.what = d.what
    for update of t skip locked
))
