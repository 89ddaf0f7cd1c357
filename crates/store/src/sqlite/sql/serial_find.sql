-- The number of a serial key that is there.
select id from windlass_serials where key = ?1
