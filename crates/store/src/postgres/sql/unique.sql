-- name: holder
-- Where the job stands that last took a unique name, if it is there still.
select j.id, j.state,
       coalesce(j.hold, 0) = 2
       or exists (select 1 from ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $2::int8 and r.job = j.id)
       or exists (select 1 from serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id),
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0),
       j.submitted_at, j.settings, j.digest, coalesce(j.parked, 0) = 1
from jobs j where j.id = $1::uuid

-- name: lock
-- Locks a unique name that was taken before. Its job is read by unique.holder, which sees what was committed meanwhile.
select job from unique_names where kind = $1::int4 and name = $2::text for update

-- name: parent
-- Whether a job has a unique name that a job it submits asks for, and the change that does so is to be written: epoch and rev are
-- those of the change, its claim is recorded, and there is neither a job with the id of what it submits ($8) nor one with its
-- key. Answers since when it is there, and its settings. The job and the name are locked. Walks primary keys and the key's index.
select j.submitted_at, j.settings
from unique_names s join jobs j on j.id = s.job
where s.kind = $1::int4 and s.name = $2::text and s.job = $3::uuid
  and j.epoch = $4::int4 and j.rev = $5::int4 and j.state = 0
  and exists (select from claims k where k.worker = $6::int8 and k.number = $7::int8)
  and not exists (select from jobs o where o.id = $8::uuid)
  and not exists (select from jobs o where o.kind = $1 and o.key = $9::text)

-- name: set
-- Gives a unique name to another job.
update unique_names set job = $3::uuid where kind = $1::int4 and name = $2::text

-- name: take
-- Takes a unique name that nobody took before.
insert into unique_names (kind, name, job) values ($1::int4, $2::text, $3::uuid) on conflict do nothing
