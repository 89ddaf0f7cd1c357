-- Slots held by jobs that ended, were pruned, are set aside, or are parked and do not keep them.
select h.serial, h.job from windlass_holders h
where not exists (select 1 from windlass_jobs j where j.id = h.job and j.state = 0 and j.serial = h.serial
                  and coalesce(j.hold, 0) <> 2 and (j.parked is null or j.keeps))
