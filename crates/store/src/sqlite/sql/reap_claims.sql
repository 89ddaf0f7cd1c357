-- Claims of dead workers, a bounded batch.
select c.worker, c.number, c.alone, c.claimed_at, c.jobs
from windlass_claims c join windlass_workers w on w.id = c.worker
where w.life = 1
order by c.worker, c.number
limit ?1
