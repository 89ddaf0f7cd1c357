-- Whether a job waits to be put in.
select exists (select 1 from windlass_arrivals where id in (?1, ?2))
