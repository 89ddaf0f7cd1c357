-- One job with all that is known of it. The place it is in says the state of a live one; a running one's holder is
-- found in the claims, which are few.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       (coalesce(j.hold, 0) = 2 or exists (select 1 from ready r
               where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $2::int8 and r.job = j.id)
        or exists (select 1 from line l where l.serial = j.serial and l.place = j.place and l.job = j.id)),
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0),
       coalesce(j.parked, 0) = 1, j.stage, j.epoch, j.rev, j.deaths, j.crashes, coalesce(h.worker, j.worker),
       coalesce(h.claimed_at, j.started_at), j.deadline_at, j.tags, j.options, j.settings, j.spent, j.codec, j.input,
       j.output_codec, j.output, j.failure, j.parent, j.data_codec, j.data, j.wait, j.until, j.pending, j.unwind,
       j.branch, j.spawn, j.item, coalesce(j.items, 1), b.name, b.spawns
from jobs j
left join lateral (
    select c.worker, c.claimed_at from claims c, unnest(c.jobs, c.epochs) as p (id, epoch)
    where p.id = j.id and p.epoch = j.epoch and j.state = 0 limit 1
) h on true
left join branches b on b.job = j.parent and b.number = j.branch
where j.id = $1
