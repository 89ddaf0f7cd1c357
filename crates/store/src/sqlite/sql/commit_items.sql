-- So many items of a block have ended well (?2), and others take the place of so many (?3). Walks the primary key.
update windlass_jobs set tallied = nullif(coalesce(tallied, 0) + ?2, 0), items = coalesce(items, 1) - ?3 where id = ?1
