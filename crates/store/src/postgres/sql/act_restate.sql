-- Gives a locked machine another lane, stage and data: whoever looked at it before is outdated.
update jobs set lane = $2::int4, stage = $3::text, data_codec = $4::int2, data = $5::bytea, epoch = epoch + 1
where id = $1::uuid
