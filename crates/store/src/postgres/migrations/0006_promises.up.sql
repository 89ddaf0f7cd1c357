-- Promises: what was missing for guarantees to hold everywhere.

-- `submit` runs as the owner: temporary tables of its caller, which are looked for first unless the path says otherwise, come
-- last for it.
do $$ begin
    execute format('alter function submit set search_path = %I, pg_temp', current_schema());
end $$;
