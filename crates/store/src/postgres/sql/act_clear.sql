-- Forgets what held jobs that have ended meanwhile.
with untold as (
    delete from orders where job = any($1::uuid[]) returning job, deadline_at
), unpaused as (
    delete from pauses where job = any($1::uuid[])
)
delete from timers t using untold o where t.due_at = o.deadline_at and t.job = o.job and t.what = 2
