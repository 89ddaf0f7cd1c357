-- So many more (or fewer) children of a job have not ended: those of round ?3, or of the round of child ?4. They count only
-- while the job is in the stage that waits for them. Walks the primary key.
update windlass_jobs set pending = pending + ?2
where id = ?1 and since = coalesce(?3, (select c.round from windlass_jobs c where c.id = ?4))
returning pending, wait, lane, priority, due_at, suspect, deadline_at, hold, serial, place, parked,
          case when round is not null then parent end, round = -1, branch is not null or branched is not null
