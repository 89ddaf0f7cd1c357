-- Writes a step after which the claim is over: the job is parked, or lets others pass. As commit_next, and the epoch is
-- raised.
update windlass_jobs
set rev = rev + 1, rev_epoch = epoch, rev_claim = ?18, epoch = epoch + 1, worker = ?4, started_at = ?5,
    attempts = case when ?6 then attempts + 1 else 0 end, spent = null, deaths = 0, crashes = 0, suspect = 0,
    since = case when ?7 is null then since else rev + 1 end,
    pending = case when ?7 is null or since = rev + 1 then pending else 0 end,
    run = case when ?7 is null then run when ?13 is null then run + 1 else 0 end, stage = coalesce(?7, stage), data_codec = case when ?7 is null then data_codec else ?8 end,
    data = case when ?7 is null then data else ?9 end,
    far = case when ?7 is null then far when ?10 then coalesce(far, 0) | 4 else nullif(far & 3, 0) end,
    due_at = ?12, wait = ?13, until = ?14, parked = ?15, undo = coalesce(?16, undo), unwind = coalesce(?17, unwind)
where id = ?1 and epoch = ?2 and rev = ?3 and state = 0
  and (?11 or ?7 is null or ?10 or coalesce(far, 0) & 4 = 0)
returning lane, priority, due_at, suspect, deadline_at, hold, serial, place, parked,
          case when round is not null then parent end, round = -1, branch is not null or branched is not null, keeps, pending
