-- Takes a unique name that nobody took before.
insert into scopes (kind, key, job) values ($1::int4, $2::text, $3::uuid) on conflict do nothing
