-- All of a job that a fork of it takes over.
select lane, priority, tags, options, settings, codec, input, digest from jobs where id = $1::uuid
