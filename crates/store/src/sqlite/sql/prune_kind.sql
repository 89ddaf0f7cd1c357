-- The number of a kind.
select id from kinds where name = ?1
