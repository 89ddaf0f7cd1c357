-- Forgets a claim with nothing left in it.
delete from claims where worker = ?1 and number = ?2
