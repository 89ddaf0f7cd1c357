-- Execution::submit and retries by hand, as far as unique names go. A row of unique_names is the job that last took a name; whether that job still
-- holds it is decided when another job asks for it. Locks unique_names before jobs; the holder's state is read by control.read_state, which
-- sees what was committed while the lock was waited for.

-- name: take
-- Gives a name to a job, if nobody took it before.
insert into unique_names (kind, name, job) values ($1::int4, $2::text, $3::uuid) on conflict do nothing

-- name: lock
-- Locks a name that was taken before, and reads the job that took it last. Walks the primary key.
select job from unique_names where kind = $1::int4 and name = $2::text for update

-- name: set
-- Gives a name, which is locked, to another job. Walks the primary key.
update unique_names set job = $3::uuid where kind = $1::int4 and name = $2::text

-- name: held_by_parent
-- Whether a job took the name that a job it submits asks for, and the change that does so will be written: epoch, revision and claim are
-- those of the change, and no job has the id ($8) or the key ($9) of the new one. Returns when the holder was submitted, and its settings. The
-- job and the name are locked. Walks primary keys and jobs_key.
select j.submitted_at, j.settings
from unique_names s join jobs j on j.id = s.job
where s.kind = $1::int4 and s.name = $2::text and s.job = $3::uuid
  and j.epoch = $4::int4 and j.rev = $5::int4 and j.state = 0
  and exists (select from claims k where k.worker = $6::int8 and k.number = $7::int8)
  and not exists (select from jobs o where o.id = $8::uuid)
  and not exists (select from jobs o where o.kind = $1 and o.key = $9::text)
