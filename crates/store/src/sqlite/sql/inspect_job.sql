-- One job with all that is known of it. The place it is in says the state of a live one.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       coalesce(j.hold, 0) = 2
       or exists (select 1 from windlass_ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?2 and r.job = j.id)
       or exists (select 1 from windlass_line l where l.serial = j.serial and l.place = j.place and l.job = j.id),
       exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0),
       j.parked is not null, j.stage,
       j.epoch, j.rev, j.deaths, j.crashes, j.worker, j.started_at, j.deadline_at, j.tags, j.options, j.settings,
       j.spent, j.codec,
       case when j.far & 1 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 1) else j.input end,
       j.output_codec,
       case when j.far & 2 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 2) else j.output end,
       j.failure, j.parent, j.data_codec,
       case when j.far & 4 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 4) else j.data end,
       j.wait, j.until, j.pending, j.unwind
from windlass_jobs j where j.id = ?1
