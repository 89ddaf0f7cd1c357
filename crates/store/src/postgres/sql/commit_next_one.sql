-- The same as commit_next for one step that consumes nothing: a long chain of steps is written one by one, and a
-- statement that handles no arrays starts sooner.
with wrote as (
    update jobs j
    set rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = $12::int8, worker = $5, started_at = $6,
        since = case when $8::text is null then j.since else j.rev + 1 end,
        pending = case when $8 is null then j.pending else 0 end, run = case when j.hold = 1 and $8 is null then j.run else j.run + 1 end, stage = coalesce($8, j.stage),
        data_codec = coalesce($9::int2, j.data_codec), data = coalesce($10::bytea, j.data),
        attempts = case when $11::bool then j.attempts + 1 else 0 end, spent = null, deaths = 0, crashes = 0,
        suspect = false, wait = null, waits = null, needs = null, until = null,
        epoch = case when j.hold = 1 then j.epoch + 1 else j.epoch end,
        due_at = case when j.hold = 1 then
            coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) else j.due_at end,
        hold = case when j.hold = 1 then 2 else j.hold end
    where j.id = $2::uuid and j.epoch = $3::int4 and j.rev = $4::int4 and j.state = 0
      and exists (select from claims k where k.worker = $5 and k.number = $12)
    returning j.id, j.rev, j.stage, j.hold, j.serial,
              j.parent, j.branch, coalesce(j.items, 1) - coalesce(j.tallied, 0) as items
), kept as (
    insert into steps (job, rev, stage, next, how, at, worker)
    select w.id, w.rev, $7::text, w.stage, 'next',
           coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8), $5::int8
    from wrote w where $7 is not null
)
select id, hold is not null, hold is not null and serial is not null, parent, branch, items from wrote
