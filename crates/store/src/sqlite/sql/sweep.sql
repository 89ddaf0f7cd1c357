-- Keys with a free slot and someone in line. Jumps from key to key along the primary key of line.
with recursive waiting (serial) as (
    select min(serial) from line
    union all
    select (select min(l.serial) from line l where l.serial > w.serial) from waiting w where w.serial is not null
)
select w.serial from waiting w join serials s on s.id = w.serial
where (select count(*) from holders h where h.serial = s.id) < s.slots
