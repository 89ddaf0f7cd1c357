-- What an earlier send of the same claim took, as far as it is still claimed. Walks the primary key of jobs.
select true, true, true, false,
       j.id, j.lane, j.epoch, j.rev, j.attempts, j.deaths, j.key, j.deadline_at, j.spent, j.settings, j.codec, j.input,
       0::int8, 0::int8, false, j.due_at, 0, null::text,
       j.stage, j.data_codec, j.data, j.wait, j.until, j.pending,
       case when j.round is not null or j.branch is not null then j.parent end, j.since, j.run, j.unwind, j.branch,
       coalesce(j.items, 1) - coalesce(j.tallied, 0), null::record[]
from claims c
cross join lateral unnest(c.jobs, c.epochs) with ordinality as p (id, epoch, place)
join jobs j on j.id = p.id and j.epoch = p.epoch and j.state = 0
where c.worker = $1 and c.number = $2
order by p.place
