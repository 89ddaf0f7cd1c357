-- Notes who paused a job.
insert into windlass_pauses (job, at, author, note) values (?1, ?2, ?3, ?4)
