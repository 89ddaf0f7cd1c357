-- The first places of one lane, by rank. Walks the primary key of ready; touches `limit` entries.
select rank, job, 1 from windlass_ready where lane = ?1 order by rank, job limit ?2
