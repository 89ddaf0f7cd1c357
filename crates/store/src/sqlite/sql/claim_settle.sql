-- Forgets a claim with nothing left in it.
delete from windlass_claims where worker = ?1 and number = ?2
