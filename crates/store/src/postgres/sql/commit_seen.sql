-- Which of the changes that did not apply were applied before: then their claim wrote the rev after theirs. Answers also
-- whether the epoch they were made under holds still.
select j.id, j.state = 0 and j.epoch = c.epoch
from unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[]) as c (id, epoch, rev, worker, claim)
join jobs j on j.id = c.id and j.rev = c.rev + 1 and j.rev_epoch = c.epoch and j.worker = c.worker and j.rev_claim = c.claim
