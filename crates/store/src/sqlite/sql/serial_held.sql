-- Whether a job has one of the slots of its key. Walks the primary key.
select exists (select 1 from windlass_holders where serial = ?1 and job = ?2)
