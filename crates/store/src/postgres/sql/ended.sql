-- How jobs ended, if they did.
select id, state, reason, failure, output_codec, output from jobs where id = any($1::uuid[])
