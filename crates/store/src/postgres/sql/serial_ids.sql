-- The numbers of serial keys.
select key, id from serials where key = any($1::text[])
