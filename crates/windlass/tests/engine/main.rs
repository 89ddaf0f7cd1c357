//! The engine on real stores: as its users meet it, and while the database goes away.

mod blocked;
mod codec;
mod common;
mod control;
mod crash;
mod crowd;
mod faults;
mod flow;
mod handed_back;
mod limits;
mod machines;
mod outage;
mod restored;
mod set_aside;
mod spans;
mod suspects;
mod telemetry;
mod together;
mod told;
mod transactions;
mod unread;
mod versions;
mod work;
