-- All claims of a worker.
select number, jobs from windlass_claims where worker = ?1 order by number
