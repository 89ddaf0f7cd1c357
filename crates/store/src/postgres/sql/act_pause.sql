-- Keeps locked jobs from being claimed: with $2, those that were taken out of the ready set or a line.
with held as (
    update jobs j set hold = x.hold from unnest($1::uuid[], $2::int2[]) as x (id, hold) where j.id = x.id
)
insert into pauses (job, at, author, note) select id, $3::int8, $4::text, $5::text from unnest($1::uuid[]) as x (id)
