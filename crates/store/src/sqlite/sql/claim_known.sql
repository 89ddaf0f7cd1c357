-- Whether a claim is recorded. Walks the primary key.
select exists (select 1 from windlass_claims where worker = ?1 and number = ?2)
