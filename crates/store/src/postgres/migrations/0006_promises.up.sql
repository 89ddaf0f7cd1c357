-- Promises: what was missing for guarantees to hold everywhere.

-- Signals that a job could not read.
alter table signals add column aside text;  -- why it was set aside; written by the commit of the attempt that found out, cleared by whoever restores it

-- Which claim wrote: the number that goes with `worker` and `rev_epoch`. Written by commits.
alter table jobs add column rev_claim int8;

-- `submit` runs as the owner: temporary tables of its caller, which are looked for first unless the path says otherwise, come
-- last for it.
do $$ begin
    execute format('alter function submit set search_path = %I, pg_temp', current_schema());
end $$;
