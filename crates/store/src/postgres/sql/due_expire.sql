-- Fails jobs whose deadline passed: whoever runs one is fenced. Answers how many were live.
update jobs j
set state = 2, trouble = 2, epoch = j.epoch + 1, reason = $3, failure = x.failure, finished_at = $4, hold = null,
    parked = null
from unnest($1::uuid[], $2::text[]) as x (id, failure)
where j.id = x.id and j.state = 0
