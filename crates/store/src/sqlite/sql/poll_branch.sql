-- One branch, if it is to be looked at still when it was (?3): nobody else has meanwhile. Walks the primary key.
select job, number, poll_at, spawned, started, done, failed, cancelled, watch, cut, poll
from windlass_branches
where job = ?1 and number = ?2 and poll_at = ?3
