-- Entries of the audit log, newest first.
select number, at, author, action, subject, note from audit
where ($1::text is null or subject = $1) and number < coalesce($2::int8, 9223372036854775807)
order by number desc
limit $3
