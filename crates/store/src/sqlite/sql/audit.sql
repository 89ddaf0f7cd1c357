-- Adds an entry to the audit log.
insert into windlass_audit (at, author, action, subject, note) values (?1, ?2, ?3, ?4, ?5)
