-- By whom jobs were told to end whose time for it is over.
select job, author, note, deadline_at from orders where job = any($1::uuid[])
