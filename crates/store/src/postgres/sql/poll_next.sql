-- The store's clock, and when the next branch is to be looked at. Walks branches_poll.
select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8),
       (select min(poll_at) from branches where poll_at is not null)
