-- The oldest jobs that wait to be put in, a bounded batch.
select seq, id, kind, version, queue, key, priority, at, delay, deadline_at, parent, tags, options, settings, codec,
       input, digest, stage
from windlass_arrivals order by seq limit ?1
