-- Forgets a claim that has no more than ?3 bytes of jobs.
delete from windlass_claims where worker = ?1 and number = ?2 and length(jobs) <= ?3
