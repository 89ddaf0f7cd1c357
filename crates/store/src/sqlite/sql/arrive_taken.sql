-- Forgets an arrival: its job was put in.
delete from arrivals where seq = ?1
