-- Which attempts of a worker were told to end.
select job, epoch, deadline_at, author, note from orders where worker = $1 order by job
