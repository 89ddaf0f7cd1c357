-- Jobs that have a slot and should not: they ended, were set aside, or are gone. The last are forgotten at once.
with lost as (
    delete from holders h where not exists (select from jobs j where j.id = h.job) returning h.serial
)
select j.id from holders h join jobs j on j.id = h.job where j.state <> 0 or j.hold = 2
limit 1000
