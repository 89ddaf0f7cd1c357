-- Makes or changes a rate limit.
insert into buckets (name, rate, per, burst, level, at) values ($1, $2, $3, $4, $5, $6)
on conflict (name) do update
set rate = excluded.rate, per = excluded.per, burst = excluded.burst, level = excluded.level, at = excluded.at, lifted = false
