//! Access and alerts: who may do what, and who is told when.
//!
//! Administrators see users and tokens, and change them. Everybody who is logged in sees the alert rules, and changes their own password. A
//! label that ends in "…" opens a drawer by the query: `new=user`, `user=NAME`, `revoke=ID`, `mute=RULE`.

pub(super) mod act;
mod rows;
mod rules;

use askama::Template;
use windlass::{
    Time,
    operate::CreatedToken,
    store::{Token, User},
};

use self::{
    rows::{Names, TokenRow},
    rules::{Mute, RuleRow, Subject},
};
use super::{
    form::url,
    format::When,
    frame::Frame,
    html::{Html, Text, escape},
    icon::Icon,
    page::{PageCall, html},
    parts::{Action, Pages, Pill, Tone},
};
use crate::error::Error;

/// How many users and how many tokens a page has.
const ROWS: usize = 30;

#[derive(Template)]
#[template(path = "access.html")]
struct AccessPage {
    frame: Frame,
    actions: Vec<Action>,
    /// What the lists are filtered by; may be empty.
    filter: String,
    /// Users and tokens, for administrators.
    names: Option<(Names<User>, Names<TokenRow>)>,
    rules: Vec<RuleRow>,
    /// Whether this server evaluates rules.
    evaluates: bool,
    drawer: Option<Drawer>,
    /// A token that was created by the request.
    created: Option<CreatedToken>,
    /// The reader's own name, if somebody is logged in.
    me: Option<String>,
}

/// What the query opens beside the page.
enum Drawer {
    NewUser,
    NewToken,
    Password,
    User(User),
    Revoke(Token),
    Mute {
        rule: String,
        subject: Option<String>,
    },
    /// There is no such user or token.
    Unknown(String),
}

impl AccessPage {
    fn ago(&self, at: &Time) -> When {
        self.frame.clock().ago(*at)
    }

    fn at(&self, at: &Time) -> When {
        self.frame.clock().at(*at)
    }

    fn id(&self, name: &str) -> String {
        blake3::hash(name.as_bytes()).to_hex()[..12].to_owned()
    }

    fn is_me(&self, name: &str) -> bool {
        self.me.as_deref() == Some(name)
    }

    /// Buttons that end a mute: one that is listed, that of a rule, and that of what a rule finds wrong.
    fn unmute(&self, rule: &RuleRow, mute: &Mute) -> Action {
        let action = self.unmute_rule(rule);
        match &mute.subject {
            Some(subject) => action.field("subject", subject),
            None => action,
        }
    }

    fn unmute_rule(&self, rule: &RuleRow) -> Action {
        let action = Action::post("Unmute", "/access/alerts/unmute", &self.frame.csrf);
        action.field("back", "/access").field("rule", &rule.name).small()
    }

    fn unmute_subject(&self, rule: &RuleRow, subject: &Subject) -> Action {
        self.unmute_rule(rule).field("subject", &subject.name)
    }

    /// The hidden fields of a form about a user.
    fn about(&self, user: &str) -> Html {
        let back = url("/access", [("user", Some(user))]);
        let fields = [("csrf", self.frame.csrf.as_str()), ("back", &back), ("user", user)];
        let input = |(name, value): (&str, &str)| {
            format!("<input type=\"hidden\" name=\"{name}\" value=\"{}\">", escape(value))
        };
        Html::trusted(fields.map(input).concat())
    }

    fn user_pill(&self, user: &User) -> Pill {
        match user.disabled_at {
            Some(_) => Pill::new(Tone::Warn, Icon::Blocked, "disabled"),
            None => Pill::new(Tone::Ok, Icon::Done, "may log in"),
        }
    }
}

/// Renders the page.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    render(&call, None).await
}

async fn render(call: &PageCall, created: Option<CreatedToken>) -> Result<String, Error> {
    let frame = call.frame("Access and alerts", "access").await?;
    let filter = call.query.text("q").unwrap_or_default().chars().take(200).collect::<String>();
    let alerts = call.alerts().await?;
    let settings = call.shared().settings.alerts.as_ref();
    let known = settings.map_or(&[][..], |settings| &settings.rules);
    let rules = rules::rows(known, &alerts, frame.clock());
    let (names, drawer) = match frame.may_administer {
        true => {
            let (users, tokens) = (call.users().await?, call.tokens().await?);
            let names = (
                Names::users(&users, &filter, call.query.text("users_after")),
                Names::tokens(&tokens, &filter, call.query.text("tokens_after"), frame.now),
            );
            (Some(names), drawer(call, &users, &tokens))
        }
        false => (None, None),
    };
    let me = call.principal().user.clone();
    let wants_password = me.is_some() && call.query.text("new") == Some("password");
    html(&AccessPage {
        actions: actions(&frame, me.is_some()),
        drawer: if wants_password { Some(Drawer::Password) } else { drawer.filter(|_| created.is_none()) },
        evaluates: settings.is_some(),
        frame,
        filter,
        names,
        rules,
        created,
        me,
    })
}

fn actions(frame: &Frame, is_user: bool) -> Vec<Action> {
    let mut actions = Vec::new();
    if is_user {
        actions.push(
            Action::link("Change your password…", "/access?new=password").command("Change your password"),
        );
    }
    if frame.may_administer {
        let link = |text, what| Action::link(text, &format!("/access?new={what}")).icon(Icon::Plus);
        actions.push(link("New user…", "user").command("Create a user"));
        actions.push(link("New token…", "token").command("Create a token"));
    }
    actions
}

/// The drawer that the query asks for.
fn drawer(call: &PageCall, users: &[User], tokens: &[Token]) -> Option<Drawer> {
    let query = &call.query;
    match query.text("new") {
        Some("user") => return Some(Drawer::NewUser),
        Some("token") => return Some(Drawer::NewToken),
        _ => {}
    }
    if let Some(name) = query.text("user") {
        let user = users.iter().find(|user| user.name == name);
        return Some(
            user.map_or_else(|| Drawer::Unknown(name.to_owned()), |user| Drawer::User(user.clone())),
        );
    }
    if let Some(id) = query.text("revoke") {
        let token = tokens.iter().find(|token| token.id == id && token.revoked_at.is_none());
        return Some(
            token.map_or_else(|| Drawer::Unknown(id.to_owned()), |token| Drawer::Revoke(token.clone())),
        );
    }
    let rule = query.text("mute")?.to_owned();
    Some(Drawer::Mute { rule, subject: query.text("subject").map(str::to_owned) })
}
