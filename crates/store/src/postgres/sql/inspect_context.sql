-- The values in a workflow's context. Walks the primary key.
select name, codec, value from context where job = $1
