-- Bytes of all tables of the schema, with their indexes.
select coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8
from pg_class c where c.relnamespace = current_schema()::regnamespace and c.relkind = 'r'
