-- Which jobs wait to be put in.
select id from arrivals where id = any($1::uuid[])
