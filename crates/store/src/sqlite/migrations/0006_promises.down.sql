-- Back to branches.

-- Signals that a job could not read: those that were set aside are in the inbox again.
alter table windlass_signals drop column aside;

alter table windlass_jobs drop column heard;

alter table windlass_jobs drop column rev_claim;
