-- Whether a look at a branch is still this one's, which nobody takes over until the transaction ends. Walks the primary key.
select 1 from branches where job = $1::uuid and number = $2::int8 and poll_at = $3::int8 for update
