-- Records a transition: of the stage that ran to the stage the job is in now, unless it has ended (?4). Walks the primary
-- keys.
insert into windlass_steps (job, rev, stage, next, how, at, worker)
values (?1, ?2, ?3,
        case when ?4 then null else coalesce(?5, (select stage from windlass_jobs where id = ?1)) end, ?6, ?7, ?8)
