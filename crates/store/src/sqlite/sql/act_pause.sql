-- Notes who paused a job.
insert into pauses (job, at, author, note) values (?1, ?2, ?3, ?4)
