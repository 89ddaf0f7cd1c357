-- A job was made to end: its branches are cut, unless they were merged. Walks the primary key.
update windlass_branches set cut = 1, poll_at = ?2 where job = ?1 and merged_at is null
