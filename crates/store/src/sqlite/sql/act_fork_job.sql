-- Gives a fork (?1) the stage and data of the job it goes on from (?2), and what there is to undo. Walks the primary key.
update windlass_jobs as n
set rev = 1, undo = f.undo, stage = f.stage, data_codec = f.data_codec, data = f.data,
    far = nullif(coalesce(n.far, 0) | (coalesce(f.far, 0) & 4), 0)
from windlass_jobs f
where n.id = ?1 and f.id = ?2
