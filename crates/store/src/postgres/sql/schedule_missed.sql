-- Makes a summary of missed ticks.
insert into misses (schedule, at, first, last, count, at_least, why) values ($1, $2, $3, $4, $5, $6, $7)
on conflict (schedule, at) do update
set first = least(misses.first, excluded.first), last = greatest(misses.last, excluded.last),
    count = misses.count + excluded.count, at_least = misses.at_least or excluded.at_least,
    why = misses.why || ', ' || excluded.why
