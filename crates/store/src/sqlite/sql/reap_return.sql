-- Returns a job as a suspect: its epoch is raised.
update windlass_jobs set epoch = epoch + 1, deaths = ?2, crashes = ?3, suspect = 1, failure = ?4 where id = ?1
