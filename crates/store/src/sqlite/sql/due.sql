-- Timers that are due, a bounded batch. Walks the primary key.
select t.due_at, t.job, t.what, j.state, j.lane, j.priority, j.due_at, j.suspect, j.deadline_at
from timers t join jobs j on j.id = t.job
where t.due_at <= ?1
order by t.due_at, t.job, t.what
limit ?2
