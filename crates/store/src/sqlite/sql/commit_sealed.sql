-- Whether a branch is sealed, if there is one of that number. Walks the primary key.
select sealed from windlass_branches where job = ?1 and number = ?2
