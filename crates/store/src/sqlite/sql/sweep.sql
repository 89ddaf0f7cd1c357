-- Keys with a free slot and someone in line. Jumps from key to key along the primary key of line.
with recursive waiting (serial) as (
    select min(serial) from windlass_line
    union all
    select (select min(l.serial) from windlass_line l where l.serial > w.serial) from waiting w where w.serial is not null
)
select w.serial from waiting w join windlass_serials s on s.id = w.serial
where (select count(*) from windlass_holders h where h.serial = s.id) < s.slots
