-- Back to branches.

alter table jobs drop column rev_claim;
