-- Whether a job has a unique name that a job it submits asks for, and the change that does so is to be written: epoch and rev are
-- those of the change, its claim is recorded, and there is neither a job with the id of what it submits ($8) nor one with its
-- key. Answers since when it is there, and its settings. The job and the name are locked. Walks primary keys and the key's index.
select j.submitted_at, j.settings
from scopes s join jobs j on j.id = s.job
where s.kind = $1::int4 and s.key = $2::text and s.job = $3::uuid
  and j.epoch = $4::int4 and j.rev = $5::int4 and j.state = 0
  and exists (select from claims k where k.worker = $6::int8 and k.number = $7::int8)
  and not exists (select from jobs o where o.id = $8::uuid)
  and not exists (select from jobs o where o.kind = $1 and o.key = $9::text)
