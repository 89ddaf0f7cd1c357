-- Writes what is left in a bucket.
update windlass_buckets set level = ?2, at = ?3 where id = ?1
