-- The number of a kind.
select id from windlass_kinds where name = ?1
