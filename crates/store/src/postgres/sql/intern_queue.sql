-- Numbers for queues.
insert into queues (name) select distinct n from unnest($1::text[]) n order by n on conflict do nothing
