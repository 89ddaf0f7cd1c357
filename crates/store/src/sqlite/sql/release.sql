-- Hands a claimed job back where it stood in line: its epoch is raised.
update windlass_jobs set epoch = epoch + 1
where id = ?1 and epoch = ?2 and state = 0
returning lane, priority, due_at, suspect, deadline_at, hold, serial, place, parked,
          case when round is not null then parent end, round = -1, branch is not null or branched is not null
