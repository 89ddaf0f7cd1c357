-- Why a job is held: whether it was told to end, and who paused it.
select exists (select 1 from windlass_orders where job = ?1), (select author from windlass_pauses where job = ?1)
