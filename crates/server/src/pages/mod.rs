//! The dashboard: pages that the server renders, and what they are made of.
//!
//! In reading order: `frame` is what surrounds every page; `html` and `format` write text, numbers and times; `icon` has the symbols;
//! `parts` are what pages are made of, with `bars`, `charts`, `calendar`, `timeline`, `payload` and `diagram` (laid out by `layers`) for what is drawn;
//! `assets` are the stylesheet and the script; `components` is a page that shows each part once.
//!
//! What always holds: pages need no script, and no style or script within the page; what users wrote is escaped by the templates or by
//! `html`; the size of a page is bounded whatever users wrote.

mod assets;
mod bars;
mod calendar;
mod charts;
mod components;
mod diagram;
mod format;
mod frame;
mod html;
mod icon;
mod layers;
mod parts;
mod payload;
mod timeline;
