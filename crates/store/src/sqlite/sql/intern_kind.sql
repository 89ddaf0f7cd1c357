-- A number for a kind.
insert into windlass_kinds (name) values (?1) on conflict do nothing
