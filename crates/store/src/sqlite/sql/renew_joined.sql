-- Notes that a claim no longer runs alone.
update windlass_claims set alone = 0 where worker = ?1 and number = ?2
