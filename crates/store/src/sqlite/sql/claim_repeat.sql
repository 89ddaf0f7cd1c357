-- What an earlier send of the same claim took.
select jobs from windlass_claims where worker = ?1 and number = ?2
