-- The number of a serial key that is there.
select id from serials where key = ?1
