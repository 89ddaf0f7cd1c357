-- Locks branches by job and number, before commit_look is sent: what it sees then holds until the end of the transaction, but
-- for more ends. Their jobs are locked before. Walks the primary key.
select from unnest($1::uuid[], $2::int8[]) as k (job, number)
join branches b on b.job = k.job and b.number = k.number
order by b.job, b.number for update of b
