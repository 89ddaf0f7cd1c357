-- How the children of a branch have ended, and what its job wants to be told of. Walks the primary key.
select started, done, failed, cancelled, watch from windlass_branches where job = ?1 and number = ?2
