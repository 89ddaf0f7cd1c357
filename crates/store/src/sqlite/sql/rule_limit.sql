-- Makes or changes a rate limit.
insert into windlass_buckets (name, rate, per, burst, level, at) values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict (name) do update set rate = ?2, per = ?3, burst = ?4, level = ?5, at = ?6, lifted = 0
returning id
