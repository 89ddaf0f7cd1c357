-- The versions of all gates; and for the timers' gate, the newest job that waits to be put in.
select queue, version, 0 from windlass_gates
union all select 0, 0, coalesce(max(seq), 0) from windlass_arrivals
