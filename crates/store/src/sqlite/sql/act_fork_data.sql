-- Gives a fork (?1) the large data of the job it goes on from (?2). Walks the primary key.
insert into windlass_payloads (job, what, bytes) select ?1, what, bytes from windlass_payloads where job = ?2 and what = 4
