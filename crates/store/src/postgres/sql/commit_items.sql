-- Notes of blocks, which are locked, how many of their items are counted and how many have become jobs of their own. Walks
-- the primary key of jobs. Answers how many are left of each: if that is less than none, whoever asked rolls back.
update jobs j set items = coalesce(j.items, 1) - k.promoted, tallied = coalesce(j.tallied, 0) + k.counted
from unnest($1::uuid[], $2::int4[], $3::int4[]) as k (id, counted, promoted) where j.id = k.id
returning j.items - j.tallied, k.counted + k.promoted
