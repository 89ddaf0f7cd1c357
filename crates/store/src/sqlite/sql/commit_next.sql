-- Writes a step after which the next follows under the same claim, if epoch and rev are those of the change and the job
-- is not held and leaves no large data behind (or ?11). Its counters start anew, unless it is but a part of an attempt (?6 is null). Walks the primary key.
update windlass_jobs
set rev = rev + 1, rev_epoch = epoch, rev_claim = ?14, worker = ?4, started_at = ?5,
    attempts = case when ?6 is null then attempts when ?6 then attempts + 1 else 0 end,
    spent = case when ?6 is null then spent end, deaths = 0, crashes = 0, suspect = 0,
    wait = case when ?6 is null then wait end, until = case when ?6 is null then until end,
    since = case when ?7 is null then since else rev + 1 end,
    pending = case when ?7 is null or since = rev + 1 then pending else 0 end, run = run + 1, stage = coalesce(?7, stage), data_codec = case when ?7 is null then data_codec else ?8 end,
    data = case when ?7 is null then data else ?9 end,
    far = case when ?7 is null then far when ?10 then coalesce(far, 0) | 4 else nullif(far & 3, 0) end,
    undo = coalesce(?12, undo), unwind = coalesce(?13, unwind)
where id = ?1 and epoch = ?2 and rev = ?3 and state = 0
  and (?11 or (hold is null and (?7 is null or ?10 or coalesce(far, 0) & 4 = 0)))
