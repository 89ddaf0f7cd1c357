-- Forgets timers of jobs that have ended. Passes over those that are firing: they will find nothing to do.
delete from timers where ctid = any (array(
    select t.ctid from unnest($1::int8[], $2::uuid[]) as d (due_at, job)
    join timers t on t.due_at = d.due_at and t.job = d.job and t.what = $3
    for update of t skip locked
))
