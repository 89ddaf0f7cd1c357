-- The life and lease of a worker that claims. PostgreSQL locks the row for share within claim; here the write
-- transaction is lock enough.
select life, lease_until from workers where id = ?1
