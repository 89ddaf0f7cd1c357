-- Who has the slots of a serial key, up to 10.
select job from windlass_holders where serial = ?1 order by job limit 10
