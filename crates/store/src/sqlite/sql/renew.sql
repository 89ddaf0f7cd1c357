-- Lengthens a lease and says whether there is someone to reap. A dead worker stays dead.
update windlass_workers set lease_until = ?2
where id = ?1 and life = 0
returning exists (select 1 from windlass_workers where (life = 0 and lease_until <= ?3) or life = 1),
          (select json_group_array(number) from (select number from windlass_claims where worker = ?1 order by number))
