-- The same as commit_next for one step of a workflow that adds one entry to its journal and writes nothing else: a long
-- chain of steps is written one by one, and a statement that handles no arrays starts sooner.
with wrote as (
    update jobs j
    set rev = j.rev + 1, rev_epoch = j.epoch, rev_claim = $18::int8, worker = $5::int8, started_at = $6::int8, run = case when j.hold = 1 then j.run else j.run + 1 end,
        attempts = case when $7::bool then j.attempts + 1 else 0 end, spent = null, deaths = 0, crashes = 0,
        suspect = false, wait = null, waits = null, needs = null, until = null,
        epoch = case when j.hold = 1 then j.epoch + 1 else j.epoch end,
        due_at = case when j.hold = 1 then
            coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) else j.due_at end,
        hold = case when j.hold = 1 then 2 else j.hold end, undo = case when $8::bool then true else j.undo end
    where j.id = $2::uuid and j.epoch = $3::int4 and j.rev = $4::int4 and j.state = 0
      and exists (select from claims k where k.worker = $5 and k.number = $18)
    returning j.id, j.hold, j.serial, j.parent, j.branch, coalesce(j.items, 1) - coalesce(j.tallied, 0) as items
), journaled as (
    insert into journal (job, seq, op, mark, name, key, line, at, codec, payload)
    select w.id, $9::int4, $10::int2, $11::int2, $12::text, $13::text, $14::text, $15::int8, $16::int2, $17::bytea
    from wrote w
)
select id, hold is not null, hold is not null and serial is not null, parent, branch, items from wrote
