-- What a change does to a branch beside its children: what it does not name stays as it is. A branch that is watched is
-- looked at from ?9 on, one that is cut at once, and one that is merged no longer unless it is cut. Walks the primary key.
update windlass_branches
set spawns = coalesce(?3, spawns), cursor_codec = coalesce(?4, cursor_codec), cursor = coalesce(?5, cursor),
    goal = coalesce(?6, goal), sealed = sealed or ?7,
    watch = case when ?10 then null else coalesce(?8, watch) end,
    poll_at = case when ?11 then ?12
                   when cut then poll_at
                   when ?10 then null
                   when ?8 is null then poll_at
                   else ?9 end,
    merged_at = case when ?10 then ?12 when ?8 is null then merged_at end,
    cut = cut or ?11
where job = ?1 and number = ?2
