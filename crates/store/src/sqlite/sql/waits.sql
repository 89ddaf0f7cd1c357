-- Execution::commit, as far as it parks jobs; and all that wakes them. Writes jobs; whether a wait is met is decided by the caller, in the
-- same transaction.

-- name: park
-- Writes a step that ends the claim, if the guard holds: parks the job at ?19, or yields if ?18 is null. As commit.next, and raises the epoch.
-- Walks the primary key. Returns the job's placement, whether it keeps its serial slot, and how many children it waits for.
update windlass_jobs
set epoch = epoch + 1, attempts = case when ?10 then attempts + 1 else 0 end, retry_counts = null, worker_deaths = 0, solo_crashes = 0,
    suspect = 0, steps_since_wait = case when ?11 is null then steps_since_wait when ?16 is null then steps_since_wait + 1 else 0 end,
    due_at = ?15, wait = ?16, wait_until = ?17, parked = ?18, parked_at = ?19, {{commit.stage}}, {{commit.written}}
where {{commit.guard}} and (?9 or {{commit.leaves_no_data}})
returning {{common.placement()}}, keeps_slot, pending_children

-- name: wake
-- Ends the wait of a parked job, which is due at ?2. Walks the primary key.
update windlass_jobs set parked = null, due_at = ?2 where id = ?1
