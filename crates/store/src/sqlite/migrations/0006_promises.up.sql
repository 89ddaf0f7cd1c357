-- Promises: what was missing for guarantees to hold everywhere.

-- Signals that a job could not read.
alter table windlass_signals add column aside text;  -- why it was set aside; written by the commit of the attempt that found out, cleared by whoever restores it
