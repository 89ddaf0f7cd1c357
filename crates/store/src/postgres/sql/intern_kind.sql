-- Numbers for kinds.
insert into kinds (name) select distinct n from unnest($1::text[]) n order by n on conflict do nothing
