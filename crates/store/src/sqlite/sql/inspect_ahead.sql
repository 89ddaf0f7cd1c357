-- How many jobs stand before a place of the ready set in its lane, up to 1,000. Walks the primary key.
select count(*) from (select 1 from windlass_ready where lane = ?1 and (rank, job) < (?2, ?3) limit 1000)
