-- Opens a branch. Walks the primary key.
insert into windlass_branches (job, number, name, spawns, opened_at) values (?1, ?2, ?3, '[]', ?4)
