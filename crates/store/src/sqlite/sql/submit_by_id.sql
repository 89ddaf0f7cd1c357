-- The digest of a job that was in the way of a submit, by its id.
select digest from windlass_jobs where id = ?1
