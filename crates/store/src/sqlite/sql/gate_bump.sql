-- Moves the gate of a queue.
insert into windlass_gates (queue, writer, version) values (?1, ?2, ?3)
on conflict (queue, writer) do update set version = version + 1
