-- Ends a job well, if epoch and rev are those of the change. Walks the primary key.
update jobs
set state = 1, rev = rev + 1, rev_epoch = epoch, worker = ?4, started_at = ?5, finished_at = ?6,
    output_codec = ?7, output = ?8
where id = ?1 and epoch = ?2 and rev = ?3 and state = 0
