-- Execution::submit and retries by hand, as far as unique names go. A row of unique_names is the job that last took a name; whether that job
-- still holds it is decided when another job asks for it. PostgreSQL locks the row meanwhile.

-- name: holder
-- Reads the job that last took a name. Walks the primary key.
select job from windlass_unique_names where kind = ?1 and name = ?2

-- name: take
-- Gives a name to a job. Walks the primary key.
insert into windlass_unique_names (kind, name, job) values (?1, ?2, ?3)
on conflict (kind, name) do update set job = ?3

-- name: release
-- Deletes a name if this job took it last. Walks the primary key.
delete from windlass_unique_names where kind = ?1 and name = ?2 and job = ?3
