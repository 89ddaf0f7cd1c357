-- Makes serial keys, and sets the slots of those that name them. Sorted, so that two batches cannot wait for each other.
insert into serials (key, slots)
select n.key, coalesce(max(n.slots), 1) from unnest($1::text[], $2::int4[]) as n (key, slots)
group by n.key order by n.key collate "C"
on conflict (key) do update set slots = excluded.slots where serials.slots <> excluded.slots and serials.key = any($3::text[])
