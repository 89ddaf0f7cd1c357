-- The jobs of one lane, by rank, with all that a worker needs; whoever reads them stops in time (a limit that is bound has
-- the statement planned anew each time). Walks the primary key of ready, then of jobs.
select j.id, j.epoch, j.rev, j.attempts, j.deaths, j.key, j.deadline_at, j.spent, j.settings, j.codec,
       case when j.far & 1 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 1) else j.input end,
       r.rank, j.due_at, j.stage, j.data_codec,
       case when j.far & 4 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 4) else j.data end,
       j.wait, j.until, j.pending, case when j.round is not null then j.parent end, j.since, j.run, j.unwind,
       j.branch, case when j.branch is not null then j.parent end, coalesce(j.items, 1) - coalesce(j.tallied, 0)
from windlass_ready r join windlass_jobs j on j.id = r.job
where r.lane = ?1
order by r.rank, r.job
