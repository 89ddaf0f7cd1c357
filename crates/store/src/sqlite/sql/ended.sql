-- How a job ended, if it did.
select state, reason, failure, output_codec, output from jobs where id = ?1
