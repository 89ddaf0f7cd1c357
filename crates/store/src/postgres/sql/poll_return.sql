-- Raises the epochs of those of some jobs that are still live and in no place at all; they enter by serial_enter, but for those
-- that are held, which are set aside. The jobs are locked by an earlier statement, so that nobody moves them. Walks the primary
-- keys of jobs, ready, line and timers. Answers who is to enter.
update jobs j set epoch = j.epoch + 1, hold = case when j.hold = 1 then 2 else j.hold end
where j.id = any($1::uuid[]) and j.state = 0 and coalesce(j.parked, 0) <> 1 and coalesce(j.hold, 0) <> 2
  and not exists (select from ready r where r.lane in (j.lane, -j.lane)
                                        and r.rank = j.due_at + j.priority * $2::int8 and r.job = j.id)
  and not exists (select from line l where l.serial = j.serial and l.place = j.place and l.job = j.id)
  and not exists (select from timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0)
  and (j.id, j.epoch) not in (select p.id, p.epoch from claims c cross join lateral unnest(c.jobs, c.epochs) as p (id, epoch))
returning j.id
