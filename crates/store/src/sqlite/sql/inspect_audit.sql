-- Entries of the audit log, newest first. Walks the primary key, or audit_subject.
select number, at, author, action, subject, note from windlass_audit
where (?1 is null or subject = ?1) and number < coalesce(?2, 9223372036854775807)
order by number desc
limit ?3
