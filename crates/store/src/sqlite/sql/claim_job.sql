-- One job of a repeated claim, if it is still claimed under that epoch. Walks the primary key.
select j.id, j.epoch, j.rev, j.attempts, j.deaths, j.key, j.deadline_at, j.spent, j.settings, j.codec,
       case when j.far & 1 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 1) else j.input end,
       j.lane, j.due_at, j.stage, j.data_codec,
       case when j.far & 4 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 4) else j.data end,
       j.wait, j.until, j.pending, case when j.round is not null then j.parent end, j.since, j.run, j.unwind,
       j.branch, case when j.branch is not null then j.parent end, coalesce(j.items, 1) - coalesce(j.tallied, 0)
from windlass_jobs j
where j.id = ?1 and j.epoch = ?2 and j.state = 0
