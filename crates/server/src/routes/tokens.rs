//! Tokens: creating, listing and revoking them.

use axum::http::{Method, StatusCode};
use windlass::{
    ControlOutcome,
    model::{Role, Scope},
    operate::{CreatedToken, TokenRequest},
    store::Token,
};

use super::{ADMINISTER, Answer, NoteInput, Route, jobs::no_query};
use crate::{
    answers::NewToken,
    call::Call,
    error::{Error, ErrorKind, accepted},
    input::{Span, input},
    reply::Reply,
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/tokens",
            ADMINISTER,
            "listTokens",
            "The tokens, revoked ones included",
            list,
        )
        .returns::<Vec<Token>>()
        .answers("The tokens, by name"),
        Route::new(Method::POST, "/v1/tokens", ADMINISTER, "createToken", "Create a token", create)
            .returns::<NewToken>()
            .also_returns::<NewToken>(StatusCode::CREATED, "It is new")
            .body::<TokenInput>()
            .answers("The token, with its `text`, which cannot be read again"),
        Route::new(
            Method::DELETE,
            "/v1/tokens/{token}",
            ADMINISTER,
            "revokeToken",
            "Revoke a token, by its id or name",
            revoke,
        )
        .returns::<ControlOutcome>()
        .optional_body::<NoteInput>(),
    ]
}

async fn list(call: Call) -> Answer {
    no_query(&call)?;
    let tokens = call.operator().tokens().await?;
    Reply::json_at(&tokens, call.engine().inspect().clock().await?)
}

input! {
    /// A token to be created.
    TokenInput {
        /// Its name, never used before: the audit log has it as the author.
        name: String,
        /// What it may do.
        role: Role,
        /// Only to jobs of these kinds [default: all].
        kinds: Option<Vec<String>>,
        /// Only to jobs in these queues [default: all].
        queues: Option<Vec<String>>,
        /// After which time it expires [default: never].
        expires_in: Option<Span>,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn create(call: Call) -> Answer {
    no_query(&call)?;
    let TokenInput { name, role, kinds, queues, expires_in, note } = call.body()?;
    let scope = Scope { kinds: kinds.unwrap_or_default(), queues: queues.unwrap_or_default() };
    let expires_in = expires_in.map(|span| span.0);
    let created = call.control(note).create_token(&TokenRequest { name, role, scope, expires_in }).await?;
    let CreatedToken { token, text } = created.map_err(|why| Error::of_text(ErrorKind::Conflict, &why))?;
    let mut answer = serde_json::to_value(&token).map_err(|error| Error::internal(&error))?;
    answer["text"] = text.into();
    Reply::json_with(StatusCode::CREATED, &answer)
}

async fn revoke(call: Call) -> Answer {
    no_query(&call)?;
    let NoteInput { note } = call.optional_body()?;
    let token = call.path("token");
    let outcome = call.control(note).revoke_token(token).await?;
    Reply::json(&accepted(outcome, &format!("token {token:?}"))?)
}
