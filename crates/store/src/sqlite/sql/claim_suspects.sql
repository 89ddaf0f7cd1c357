-- Whether suspects wait in a lane (the negative one).
select exists (select 1 from windlass_ready where lane = ?1)
