-- Whether a change that did not apply was applied before: then this epoch wrote the rev after it.
select exists (select 1 from jobs where id = ?1 and rev = ?3 + 1 and rev_epoch = ?2)
