-- name: release
-- Forgets that a job took a unique name.
delete from windlass_unique_names where kind = ?1 and name = ?2 and job = ?3

-- name: holder
-- The job that last took a unique name. Walks the primary key.
select job from windlass_unique_names where kind = ?1 and name = ?2

-- name: take
-- Gives a unique name to a job.
insert into windlass_unique_names (kind, name, job) values (?1, ?2, ?3)
on conflict (kind, name) do update set job = ?3
