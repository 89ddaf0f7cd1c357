-- Workers whose lease has run out.
select id from windlass_workers where life = 0 and lease_until <= ?1 order by id
