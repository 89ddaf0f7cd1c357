-- Whether a signal was delivered before. Walks the primary key.
select 1 from windlass_heard where job = ?1 and name = ?2 and dedup = ?3
