-- Locks jobs by id, before later statements write to some of them in another order: whoever was moving one of them has
-- finished then, and what it did is seen. Walks the primary key.
select from jobs where id = any($1::uuid[]) order by id for no key update
