-- Puts a job into the line of its key, at its place.
insert into windlass_line (serial, place, job) values (?1, ?2, ?3) on conflict do nothing
