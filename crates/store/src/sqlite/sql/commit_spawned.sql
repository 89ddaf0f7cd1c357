-- So many more children were spawned in a branch. Walks the primary key.
update windlass_branches set spawned = spawned + ?3 where job = ?1 and number = ?2
