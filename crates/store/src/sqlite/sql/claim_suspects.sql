-- Whether suspects wait in a lane (the negative one).
select exists (select 1 from ready where lane = ?1)
