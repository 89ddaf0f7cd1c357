//! The dashboard: pages of HTML.

mod format;
mod html;
mod icon;
mod layers;
