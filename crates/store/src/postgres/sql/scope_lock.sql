-- Locks a unique name that was taken before. Its job is read by scope_holder, which sees what was committed meanwhile.
select job from scopes where kind = $1::int4 and key = $2::text for update
