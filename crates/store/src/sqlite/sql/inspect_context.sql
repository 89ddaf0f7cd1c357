-- The values of a context, by name. Walks the primary key.
select name, codec, value from windlass_context where job = ?1 order by name
