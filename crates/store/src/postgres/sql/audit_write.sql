-- Adds entries to the audit log, in order.
insert into audit (at, author, action, subject, note)
select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8), $2::text, $3::text, s.subject, $5::text
from unnest($4::text[]) with ordinality as s (subject, place) order by s.place
