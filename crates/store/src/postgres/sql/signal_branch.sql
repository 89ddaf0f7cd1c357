-- Tells jobs that branches of theirs have come to what they watch for: the watches are over, and the inboxes of those that
-- are live get a signal for each, however full they are. Both are locked before. Walks the primary keys of branches and jobs.
-- Answers the branches; signal_wake comes next.
with met as (
    update branches b set watch = null, poll_at = case when b.cut then b.poll_at end
    from unnest($2::uuid[], $3::int8[]) as k (job, number)
    where b.job = k.job and b.number = k.number and b.watch is not null
    returning b.job, b.number
), delivered as (
    insert into signals (job, name, at, codec, payload)
    select m.job, 'windlass.branch', coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8), 0,
           convert_to(m.number::text, 'UTF8')
    from met m join jobs j on j.id = m.job and j.state = 0 order by m.job, m.number
)
select job, number from met
