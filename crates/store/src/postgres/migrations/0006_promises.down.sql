-- Back to branches.

-- What `submit` looks through, as it was made.
do $$ begin
    execute format('alter function submit set search_path = %I', current_schema());
end $$;
