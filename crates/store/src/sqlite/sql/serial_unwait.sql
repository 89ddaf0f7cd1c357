-- Takes a job out of the line of its key. Walks the primary key.
delete from windlass_line where serial = ?1 and place = ?2 and job = ?3
