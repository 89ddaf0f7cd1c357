-- A number for a kind.
insert into kinds (name) values (?1) on conflict do nothing
