-- The number of a serial key, made if it is new. Slots that are null are left alone; a new key has one.
insert into windlass_serials (key, slots) values (?1, coalesce(?2, 1))
on conflict (key) do update set slots = coalesce(?2, slots)
returning id
