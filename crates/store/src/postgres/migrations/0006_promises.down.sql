-- Back to branches.

-- Signals that a job could not read: those that were set aside are in the inbox again.
alter table signals drop column aside;

alter table jobs drop column rev_claim;
