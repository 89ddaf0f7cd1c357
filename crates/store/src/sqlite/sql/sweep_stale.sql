-- Slots held by jobs that ended, were pruned or are set aside.
select h.serial, h.job from windlass_holders h
where not exists (select 1 from windlass_jobs j where j.id = h.job and j.state = 0 and j.serial = h.serial
                  and coalesce(j.hold, 0) <> 2)
