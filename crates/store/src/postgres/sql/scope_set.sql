-- Gives a unique name to another job.
update scopes set job = $3::uuid where kind = $1::int4 and key = $2::text
