-- Where locked jobs are: in a line, among the timers; whether they are paused (and by whom), or told to end. A statement
-- of its own, after act_jobs and serial_lock.
select j.id,
       exists (select 1 from line l where l.serial = j.serial and l.place = j.place and l.job = j.id),
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0),
       (select p.author from pauses p where p.job = j.id),
       exists (select 1 from orders o where o.job = j.id)
from jobs j where j.id = any($1::uuid[])
