-- Workers whose lease has run out.
select id from workers where life = 0 and lease_until <= ?1 order by id
