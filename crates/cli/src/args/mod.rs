//! Arguments that several commands share.

mod actor;
mod filters;
mod flow_control;
mod kind_version;
mod payload;
mod unique;
mod working;

pub(crate) use actor::Actor;
pub(crate) use filters::Filters;
pub(crate) use flow_control::FlowControl;
pub(crate) use kind_version::KindVersion;
pub(crate) use payload::json;
pub(crate) use unique::UniqueName;
pub(crate) use working::Working;
