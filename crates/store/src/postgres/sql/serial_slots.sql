-- Sets the slots of serial keys that have others; locked by id before. Answers which changed.
update serials s set slots = n.slots from unnest($1::int8[], $2::int4[]) as n (id, slots)
where s.id = n.id and s.slots <> n.slots
returning s.id
