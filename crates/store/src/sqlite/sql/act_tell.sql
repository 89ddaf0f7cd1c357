-- Tells the attempt of a running job to end, unless it was told before.
insert into windlass_orders (job, worker, epoch, deadline_at, author, note) values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict do nothing
