-- The transitions of a machine after a revision, oldest first. Walks the primary key.
select rev, stage, next, how, at, worker from windlass_steps where job = ?1 and rev > ?2 order by rev limit ?3
