-- Takes jobs out of the ready set, from wherever their rank places them, and answers which were there: nobody else has
-- claimed those.
delete from ready r using unnest($1::int4[], $2::int8[], $3::uuid[]) as x (lane, rank, job)
where r.lane = x.lane and r.rank = x.rank and r.job = x.job
returning r.job
