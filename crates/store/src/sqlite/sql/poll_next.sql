-- When the next branch is to be looked at. Walks branches_poll.
select min(poll_at) from windlass_branches where poll_at is not null
