-- Why a job is held: whether it was told to end, and who paused it.
select exists (select 1 from orders where job = ?1), (select author from pauses where job = ?1)
