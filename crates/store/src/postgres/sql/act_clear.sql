-- Forgets what held jobs that have ended. What a job that was brought back has got since is left alone. Passes over
-- timers that are firing: they will find nothing to do.
with over as materialized (
    select j.id from jobs j where j.id = any($1::uuid[]) and j.state <> 0
), untold as (
    delete from orders o using over where o.job = over.id returning o.job, o.deadline_at
), unpaused as (
    delete from pauses p using over where p.job = over.id
)
delete from timers where ctid = any (array(
    select t.ctid from untold o join timers t on t.due_at = o.deadline_at and t.job = o.job and t.what = 2
    for update of t skip locked
))
