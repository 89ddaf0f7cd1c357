-- name: park
-- Writes a step after which the claim is over: the job is parked, or lets others pass. As commit.next, and the epoch is
-- raised.
update windlass_jobs
set rev = rev + 1, rev_epoch = epoch, rev_claim = ?18, epoch = epoch + 1, worker = ?4, started_at = ?5,
    attempts = case when ?6 then attempts + 1 else 0 end, retry_counts = null, worker_deaths = 0, solo_crashes = 0, suspect = 0,
    stage_rev = case when ?7 is null then stage_rev else rev + 1 end,
    pending_children = case when ?7 is null or stage_rev = rev + 1 then pending_children else 0 end,
    steps_since_wait = case when ?7 is null then steps_since_wait when ?13 is null then steps_since_wait + 1 else 0 end, stage = coalesce(?7, stage), data_codec = case when ?7 is null then data_codec else ?8 end,
    data = case when ?7 is null then data else ?9 end,
    external_payloads = case when ?7 is null then external_payloads when ?10 then coalesce(external_payloads, 0) | 4 else nullif(external_payloads & 3, 0) end,
    due_at = ?12, wait = ?13, wait_until = ?14, parked = ?15, has_undo = coalesce(?16, has_undo), unwind = coalesce(?17, unwind)
where id = ?1 and epoch = ?2 and rev = ?3 and state = 0
  and (?11 or ?7 is null or ?10 or coalesce(external_payloads, 0) & 4 = 0)
returning lane, priority, due_at, suspect, deadline_at, hold, serial_key, serial_position, parked,
          case when parent_rev is not null then parent end, parent_rev = -1, branch is not null or has_branches is not null, keeps_slot, pending_children

-- name: wake
-- A parked job is no longer: it is due now, or when it was.
update windlass_jobs set parked = null, due_at = ?2 where id = ?1
