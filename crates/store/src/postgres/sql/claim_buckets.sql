-- Locks the buckets of a claim, by id, so that what it charges is exact. A statement of its own: the next one sees what
-- the claim before it took.
select id from buckets where id = any($1::int4[]) order by id for update
