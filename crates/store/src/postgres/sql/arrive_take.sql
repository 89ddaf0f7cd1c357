-- Takes jobs that wait to be put in, oldest first, a bounded batch; passes over those that another process is taking.
delete from arrivals where ctid = any (array(
    select a.ctid from arrivals a order by a.seq limit $1 for update skip locked
))
returning seq, id, kind, version, queue, key, priority, at, delay, deadline_at, parent, tags, options, settings, codec,
          input, digest
