//! The dashboard: pages that the server renders, and what they are made of.
//!
//! In reading order: `frame` is what surrounds every page; `html` and `format` write text, numbers and times; `icon` has the symbols;
//! `parts` are what pages are made of, with `bars`, `charts`, `calendar`, `timeline`, `payload` and `diagram` (laid out by `layers`) for what is drawn;
//! `assets` are the stylesheet and the script; `components` is a page that shows each part once.
//!
//! A page is a value with a template:
//!
//! ```text
//! #[derive(Template)]
//! #[template(path = "queues.html")]          {% extends "base.html" %}
//! struct QueuesPage {                        {% import "parts/ui.html" as ui %}
//!     frame: Frame,                          {% block main %}
//!     counters: Counters,                    <div class="head"><div><h1>Queues</h1></div></div>
//! }                                          {{ counters }}
//!                                            {% call ui::panel("Rate limits") %}…{% endcall %}
//! frame::render(&page)?                      {% endblock %}
//! ```
//!
//! An element that changes while the page is open has an id and the attribute `data-live`; such elements are not nested, and relative times
//! stand outside of them, since the script keeps those. Rows have an id and `data-row`, and their table or list has `data-list`: it stands still while
//! a row is ticked, a drawer is open or something is typed.
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
