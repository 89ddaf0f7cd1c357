//! How pages look: the theme, and how times are written.

use axum::http::Method;

use super::{cookies::theme, form::Form, frame::Preferences, page::back};
use crate::{
    call::Call,
    reply::Reply,
    routes::{Access, Answer, Route},
};

pub(super) fn routes() -> Vec<Route> {
    vec![Route::page(Method::POST, "/preferences", Access::OpenPage, set)]
}

/// Keeps what the form names, and leaves the rest as it was. It changes nothing but cookies of whoever sends it, and needs no token.
async fn set(call: Call) -> Answer {
    let form = Form::parse(&call.body);
    let preferences = changed(Preferences::of(&call.headers), &form);
    Ok(Reply::SeeOther(back(&form), preferences.cookies(call.is_secure)))
}

fn changed(mut preferences: Preferences, form: &Form) -> Preferences {
    if let Some(name) = form.text("theme") {
        preferences.theme = theme(name);
    }
    if let Some(times) = form.text("times") {
        preferences.absolute_times = times == "absolute";
    }
    if let Some(zone) = form.text("zone") {
        preferences.utc = zone == "utc";
    }
    preferences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::frame::Theme;

    #[test]
    fn a_form_changes_what_it_names() {
        let dark = changed(Preferences::default(), &Form::parse(b"theme=dark"));
        assert_eq!(dark, Preferences { theme: Some(Theme::Dark), ..Preferences::default() });
        let utc = changed(dark, &Form::parse(b"zone=utc&times=absolute"));
        assert_eq!(utc, Preferences { theme: Some(Theme::Dark), utc: true, absolute_times: true });
        assert_eq!(
            changed(utc, &Form::parse(b"theme=system&zone=local&times=relative")),
            Preferences::default()
        );
    }
}
