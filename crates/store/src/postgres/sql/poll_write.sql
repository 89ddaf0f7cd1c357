-- Keeps what was seen of a branch, and says when it is looked at next, unless that was said meanwhile: it is cut again ($6) as
-- long as it is cut and children are live ($5), looked at again ($7) as long as its job, if that is live, waits for it.
-- Walks the primary keys of branches and jobs. Answers whether it is cut.
update branches b
set poll = $4::text, cut = b.cut and $5::bool, watch = case when j.id is not null then b.watch end,
    poll_at = case when b.cut and $5 then $6::int8 when b.watch is not null and j.id is not null then $7::int8 end
from branches o left join jobs j on j.id = o.job and j.state = 0
where o.job = $1::uuid and o.number = $2::int8 and b.job = o.job and b.number = o.number and b.poll_at = $3::int8
returning b.cut
