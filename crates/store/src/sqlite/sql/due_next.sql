-- When the next timer is due.
select min(due_at) from timers
