-- Back to branches.

alter table windlass_jobs drop column rev_claim;
