-- Makes a summary of missed ticks.
insert into windlass_misses (schedule, at, first, last, count, at_least, why) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
on conflict (schedule, at) do update
set first = min(first, excluded.first), last = max(last, excluded.last), count = count + excluded.count,
    at_least = at_least or excluded.at_least, why = why || ', ' || excluded.why
