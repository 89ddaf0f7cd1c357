-- Takes timers that are due, a bounded batch. Walks the primary key; passes over those that another process is firing.
delete from timers where ctid = any (array(
    select t.ctid from timers t where t.due_at <= $1 order by t.due_at, t.job, t.what limit $2 for update skip locked
))
returning due_at, job, what
