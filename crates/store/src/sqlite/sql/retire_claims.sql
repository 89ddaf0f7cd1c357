-- All claims of a worker.
select number, jobs from claims where worker = ?1 order by number
