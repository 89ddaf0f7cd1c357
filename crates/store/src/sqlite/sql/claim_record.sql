-- Records a claim: one row for the batch.
insert into windlass_claims (worker, number, alone, claimed_at, jobs) values (?1, ?2, ?3, ?4, ?5)
