-- Locks serial keys, by id.
select id from serials where id = any($1::int8[]) order by id for update
