-- Locks the serial keys of some jobs, by id. Whoever moves jobs of a key between its line, its slots and the ready set
-- does so in later statements, which see all that the holder of the lock before did.
select s.id from serials s
where s.id = any (array(select distinct j.serial from jobs j where j.id = any($1::uuid[]) and j.serial is not null))
order by s.id
for update
