//! The parts that pages are made of.
//!
//! A part is a value with a template of its own, so a page writes `{{ part }}`. What changes while a page is open is in an element with an
//! id and the attribute `data-live`; such elements are not nested. Parts that surround what a page writes (panels, drawers, bars) are
//! macros in `templates/parts/ui.html`.
//!
//! In reading order: states ([`Tone`], [`Pill`]), buttons ([`Action`]), what leads a page ([`Why`], [`Attention`], [`Counters`]), lists
//! ([`Tabs`], [`Filters`], [`Newer`], [`Pages`], [`Fold`]), what an operation does ([`Tally`], [`Operation`]), messages ([`Note`], [`Message`], [`Blank`]).

mod action;
mod lead;
mod list;
mod message;
mod operation;
mod status;

pub(crate) use action::Action;
pub(crate) use lead::{Attention, Counter, Counters, Why};
pub(crate) use list::{Chip, FilterField, Filters, Fold, Newer, Pages, Tab, Tabs};
pub(crate) use message::{Blank, Message, Note};
pub(crate) use operation::{Operation, Tally};
pub(crate) use status::{Pill, Tone};
