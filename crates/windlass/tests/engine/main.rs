//! The engine on real stores: as its users meet it, and while the database goes away.

mod codec;
mod common;
mod control;
mod crash;
mod crowd;
mod flow;
mod machines;
mod outage;
mod restored;
mod spans;
mod telemetry;
mod transactions;
mod versions;
mod work;
