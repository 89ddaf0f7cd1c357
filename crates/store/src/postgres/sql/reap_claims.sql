-- Takes claims of dead workers, a bounded batch; passes over those that another reaper is walking.
delete from claims where ctid = any (array(
    select c.ctid from claims c join workers w on w.id = c.worker
    where w.life = 1
    order by c.worker, c.number
    limit $1
    for update of c skip locked
))
returning worker, number, alone, claimed_at, jobs, epochs
