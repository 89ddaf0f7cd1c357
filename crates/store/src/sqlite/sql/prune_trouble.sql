-- The next failed or cancelled jobs in the order of ids, a bounded batch. Walks jobs_trouble. A job is
-- needed while its parent is there and not done: that one may be retried and read it.
select j.id, j.state, j.finished_at, j.kind, j.submitted_at,
       coalesce((select p.state <> 1 from windlass_jobs p where p.id = j.parent), 0), j.settings, j.tags, j.far,
       j.branched
from windlass_jobs j
where j.trouble = ?1 and j.id > ?2
order by j.id
limit ?3
