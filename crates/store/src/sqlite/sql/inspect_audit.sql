-- Entries of the audit log, newest first. Walks the primary key, or audit_subject.
select number, at, author, action, subject, note from audit
where (?1 is null or subject = ?1) and (?2 is null or number < ?2)
order by number desc
limit ?3
