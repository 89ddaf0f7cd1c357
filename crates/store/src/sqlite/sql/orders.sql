-- Which attempts of a worker were told to end. Walks orders_worker.
select job, epoch, deadline_at, author, note from windlass_orders where worker = ?1 order by job
