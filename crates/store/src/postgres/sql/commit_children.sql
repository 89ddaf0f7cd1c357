-- Adds children that were put in to what their parents wait for, which a step has just begun to. Walks the primary key
-- of jobs, which are locked.
update jobs j set pending = j.pending + k.n from unnest($1::uuid[], $2::int4[]) as k (id, n)
where j.id = k.id and j.since = j.rev
