-- The next jobs in the order of ids, a bounded batch. Walks the primary key, and reads whole rows only of those in the
-- state that is meant. A job is needed while its parent is there and not done: that one may be retried and read it.
select j.id, j.state, case when j.state = ?1 then j.finished_at end, j.kind, j.submitted_at,
       case when j.state = ?1 then coalesce((select p.state <> 1 from windlass_jobs p where p.id = j.parent), 0) else 0 end,
       case when j.state = ?1 then j.settings end, case when j.state = ?1 then j.tags end,
       case when j.state = ?1 then j.far end, case when j.state = ?1 then j.branched end
from windlass_jobs j
where j.id > ?2
order by j.id
limit ?3
