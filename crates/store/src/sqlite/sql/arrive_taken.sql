-- Forgets an arrival: its job was put in.
delete from windlass_arrivals where seq = ?1
