//! Users and tokens by name, a page at a time. Pure.

use windlass::{
    Time,
    operate::text::counted,
    store::{Token, User},
};

use super::{Pages, ROWS};
use crate::pages::form::url;

/// How many kinds and queues of a token are named in its row.
const NAMED: usize = 3;
/// A token that was not used for so long is worth a look.
const UNUSED: std::time::Duration = std::time::Duration::from_secs(90 * 86_400);

/// Some of the users or tokens.
pub(super) struct Names<T> {
    pub(super) rows: Vec<T>,
    /// How many there are, whatever the filter.
    pub(super) total: usize,
    /// The way to the others; `None` if all are shown.
    pub(super) pages: Option<Pages>,
}

/// A token in the list.
pub(super) struct TokenRow {
    pub(super) token: Token,
    /// The first of its kinds and queues, and how many more there are; none if it may do all.
    pub(super) scope: Vec<String>,
    pub(super) more: usize,
    /// Why it is not accepted.
    pub(super) refused: Option<&'static str>,
    /// Whether nobody has used it for long.
    pub(super) is_unused: bool,
}

impl Names<User> {
    /// The users after a name.
    pub(super) fn users(users: &[User], filter: &str, after: Option<&str>) -> Names<User> {
        let matching = users.iter().filter(|user| matches(&user.name, filter));
        page(matching, |user| &user.name, users.len(), filter, ("users_after", after, "user", "users"))
            .map(User::clone)
    }
}

impl Names<TokenRow> {
    /// The tokens after a name. If all are on one page, those that are no longer accepted come last.
    pub(super) fn tokens(tokens: &[Token], filter: &str, after: Option<&str>, now: Time) -> Names<TokenRow> {
        let mut matching: Vec<&Token> = tokens.iter().filter(|token| matches(&token.name, filter)).collect();
        // Pages follow each other by name, so that the order of several is that of the names alone.
        if matching.len() <= ROWS {
            matching.sort_by_key(|token| token.why_refused(now).is_some());
        }
        let names = ("tokens_after", after, "token", "tokens");
        page(matching.into_iter(), |token| &token.name, tokens.len(), filter, names)
            .map(|token| TokenRow::new(token, now))
    }
}

impl TokenRow {
    fn new(token: &Token, now: Time) -> TokenRow {
        let kinds = token.scope.kinds.iter().cloned();
        let scope: Vec<String> =
            kinds.chain(token.scope.queues.iter().map(|queue| format!("queue {queue}"))).collect();
        let refused = token.why_refused(now);
        TokenRow {
            more: scope.len().saturating_sub(NAMED),
            scope: scope.into_iter().take(NAMED).collect(),
            is_unused: refused.is_none() && now - token.last_used_at.unwrap_or(token.created_at) > UNUSED,
            refused,
            token: token.clone(),
        }
    }
}

impl<'a, T> Names<&'a T> {
    fn map<U>(self, map: impl Fn(&'a T) -> U) -> Names<U> {
        Names { rows: self.rows.into_iter().map(map).collect(), total: self.total, pages: self.pages }
    }
}

fn matches(name: &str, filter: &str) -> bool {
    filter.is_empty() || name.to_lowercase().contains(&filter.to_lowercase())
}

/// The rows after a name, at most [`ROWS`].
fn page<'a, T>(
    matching: impl Iterator<Item = &'a T>,
    name: impl Fn(&T) -> &str,
    total: usize,
    filter: &str,
    (field, after, one, many): (&str, Option<&str>, &str, &str),
) -> Names<&'a T> {
    let mut rows: Vec<&T> =
        matching.filter(|row| after.is_none_or(|after| name(row) > after)).take(ROWS + 1).collect();
    let has_more = rows.len() > ROWS;
    rows.truncate(ROWS);
    let filter = Some(filter).filter(|filter| !filter.is_empty());
    let to = |after: Option<&str>| url("/access", [("q", filter), (field, after)]);
    let last = rows.last().filter(|_| has_more).map(|row| to(Some(name(row))));
    let pages = (has_more || after.is_some()).then(|| Pages {
        text: format!("{} of {}", rows.len(), counted(total as u64, one, many)),
        first: after.map(|_| to(None)),
        next: last,
    });
    Names { rows, total, pages }
}

#[cfg(test)]
mod tests {
    use windlass::model::{Role, Scope};

    use super::*;

    const NOW: Time = Time(1_800_000_000_000_000);

    fn token(name: &str, revoked: bool) -> Token {
        Token {
            id: name.into(),
            name: name.into(),
            role: Role::Operator,
            scope: Scope { kinds: vec!["a".into(), "b".into()], queues: vec!["mail".into(), "sms".into()] },
            created_at: NOW - UNUSED * 2,
            created_by: "ada".into(),
            expires_at: None,
            revoked_at: revoked.then_some(NOW),
            last_used_at: None,
        }
    }

    #[test]
    fn every_name_is_on_one_page() {
        let tokens: Vec<Token> = (0..100).map(|n| token(&format!("t{n:03}"), n % 3 == 0)).collect();
        let (mut after, mut seen) = (None::<String>, Vec::new());
        loop {
            let page = Names::tokens(&tokens, "", after.as_deref(), NOW);
            assert!(page.rows.len() <= ROWS && page.total == 100);
            seen.extend(page.rows.iter().map(|row| row.token.name.clone()));
            let Some(next) = page.pages.and_then(|pages| pages.next) else { break };
            let (_, name) = next.split_once("tokens_after=").expect("a name");
            after = Some(name.to_owned());
        }
        assert_eq!(seen.len(), 100);
        seen.dedup();
        assert_eq!(seen.len(), 100);
        assert_eq!(Names::tokens(&tokens, "T09", None, NOW).rows.len(), 10);
        assert!(Names::tokens(&tokens, "none", None, NOW).rows.is_empty());
    }

    #[test]
    fn revoked_tokens_come_last_and_unused_ones_are_marked() {
        let tokens = [token("a", true), token("b", false)];
        let page = Names::tokens(&tokens, "", None, NOW);
        let rows: Vec<_> =
            page.rows.iter().map(|row| (row.token.name.as_str(), row.refused, row.is_unused)).collect();
        assert_eq!(rows, [("b", None, true), ("a", Some("it was revoked"), false)]);
        assert_eq!((page.rows[0].scope.join(" "), page.rows[0].more), ("a b queue mail".into(), 1));
        assert!(page.pages.is_none());
    }
}
