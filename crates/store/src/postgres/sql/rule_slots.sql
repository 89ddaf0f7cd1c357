-- How many jobs of a serial key run at once.
insert into serials (key, slots) values ($1, $2) on conflict (key) do update set slots = excluded.slots returning id
