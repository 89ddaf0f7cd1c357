-- Gives a machine another version, stage and data. Whoever had it claimed before is fenced.
update windlass_jobs
set lane = ?2, epoch = epoch + 1, stage = ?3, data_codec = ?4, data = ?5,
    far = case when ?6 then coalesce(far, 0) | 4 else nullif(far & 3, 0) end
where id = ?1
