-- The versions of all gates.
select queue, version from gates
