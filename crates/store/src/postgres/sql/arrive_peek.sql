-- Jobs that wait to be put in, oldest first, a bounded batch.
select seq, id, kind, version, queue, key, priority, at, delay, deadline_at, parent, tags, options, settings, codec,
       input, digest, stage
from arrivals order by seq limit $1
