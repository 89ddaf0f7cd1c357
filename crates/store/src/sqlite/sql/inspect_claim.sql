-- All claims, to find whose a running job is: they are few.
select worker, claimed_at, jobs from windlass_claims
