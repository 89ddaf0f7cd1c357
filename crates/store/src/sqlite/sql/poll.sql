-- Branches that are due to be looked at, the earliest first, a bounded batch. Walks branches_poll.
select job, number, poll_at, spawned, started, done, failed, cancelled, watch, cut, poll
from windlass_branches
where poll_at <= ?1
order by poll_at, job, number
limit ?2
