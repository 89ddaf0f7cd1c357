-- Which of the changes that did not apply were applied before: then their epoch wrote the rev after theirs. Answers also
-- whether the claim they were made under holds still.
select j.id, j.state = 0 and j.epoch = c.epoch from unnest($1::uuid[], $2::int4[], $3::int4[]) as c (id, epoch, rev)
join jobs j on j.id = c.id and j.rev = c.rev + 1 and j.rev_epoch = c.epoch
