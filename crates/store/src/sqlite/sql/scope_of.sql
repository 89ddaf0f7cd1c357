-- The job that last took a unique name. Walks the primary key.
select job from windlass_scopes where kind = ?1 and key = ?2
