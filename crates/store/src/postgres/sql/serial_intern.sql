-- Makes serial keys that are not there. Sorted, so that two batches cannot wait for each other.
insert into serials (key) select n from unnest($1::text[]) as n order by n collate "C" on conflict do nothing
