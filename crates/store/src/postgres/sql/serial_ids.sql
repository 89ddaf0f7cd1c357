-- The numbers of serial keys, and their slots.
select key, id, slots from serials where key = any($1::text[])
