-- Forgets workers that have been gone for a week. PostgreSQL does it within enlist.
delete from windlass_workers where life = 2 and lease_until < ?1 - 604800000000 and id <> ?2
