-- Takes jobs out of the ready set, from wherever their rank places them. A statement of its own, after due_jobs
-- and serial_lock: it must see a place that was being filled while those waited.
delete from ready r using unnest($1::int4[], $2::int8[], $3::uuid[]) as x (lane, rank, job)
where r.lane = x.lane and r.rank = x.rank and r.job = x.job
