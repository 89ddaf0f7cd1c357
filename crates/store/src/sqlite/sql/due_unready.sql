-- Takes a job out of the ready set, from wherever its rank places it.
delete from windlass_ready where lane = ?1 and rank = ?2 and job = ?3
