-- Entries of the audit log, newest first.
select number, at, author, action, subject, note from audit
where ($1::text is null or subject = $1) and ($2::int8 is null or number < $2)
order by number desc
limit $3
