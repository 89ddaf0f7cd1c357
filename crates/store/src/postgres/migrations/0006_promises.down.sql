-- Back to branches.

-- Signals that a job could not read: those that were set aside are in the inbox again.
alter table signals drop column aside;

alter table jobs drop column rev_claim;

-- What `submit` looks through, as it was made.
do $$ begin
    execute format('alter function submit set search_path = %I', current_schema());
end $$;
