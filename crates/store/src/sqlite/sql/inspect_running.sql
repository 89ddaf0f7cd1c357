-- The lane of one job of a claim, if it is still claimed under that epoch. Walks the primary key.
select lane from windlass_jobs where id = ?1 and epoch = ?2 and state = 0
