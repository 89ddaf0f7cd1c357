-- Keeps a branch, which is being looked at until $3, to whoever does so until $4, unless someone else has it now. Walks the
-- primary key.
update branches set poll_at = $4::int8 where job = $1::uuid and number = $2::int8 and poll_at = $3::int8
