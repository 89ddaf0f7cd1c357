-- Keeps the stage of a machine and its data with an outcome that is no progress.
update windlass_jobs
set stage = ?2, data_codec = ?3, data = ?4,
    far = case when ?5 then coalesce(far, 0) | 4 else nullif(far & 3, 0) end
where id = ?1
