-- Children of a branch in the order of their ids: all, or only those that live or do not (?6). Walks jobs_parent.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       coalesce(j.hold, 0) = 2
       or exists (select 1 from windlass_ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?1 and r.job = j.id)
       or exists (select 1 from windlass_line l where l.serial = j.serial and l.place = j.place and l.job = j.id),
       exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0),
       j.parked is not null, j.stage,
       j.branch, j.spawn, j.item, coalesce(j.items, 1), coalesce(j.tallied, 0), j.failure, j.output_codec,
       case when j.far & 2 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 2) else j.output end,
       j.codec,
       case when j.far & 1 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 1) else j.input end,
       j.data_codec,
       case when j.far & 4 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 4) else j.data end
from windlass_jobs j
where j.parent = ?2 and j.branch = ?3 and j.id > ?4 and (?6 is null or (j.state = 0) = ?6)
order by j.id
limit ?5
