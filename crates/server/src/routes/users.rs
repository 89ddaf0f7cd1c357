//! Users: creating, listing and changing them.

use axum::http::{Method, StatusCode};
use windlass::{ControlOutcome, model::Role, store::User};

use super::{ADMINISTER, Answer, NoteInput, Route, jobs::no_query};
use crate::{
    call::Call,
    error::{Error, ErrorKind, accepted},
    input::{Secret, input},
    reply::Reply,
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/users",
            ADMINISTER,
            "listUsers",
            "The users, disabled ones included",
            list,
        )
        .returns::<Vec<User>>()
        .answers("The users, by name"),
        Route::new(Method::POST, "/v1/users", ADMINISTER, "createUser", "Create a user", create)
            .returns::<User>()
            .also_returns::<User>(StatusCode::CREATED, "It is new")
            .body::<UserInput>()
            .answers("The user"),
        Route::new(
            Method::POST,
            "/v1/users/{user}/password",
            ADMINISTER,
            "setUserPassword",
            "Give a user another password, and end their sessions",
            set_password,
        )
        .returns::<ControlOutcome>()
        .body::<PasswordInput>(),
        Route::new(
            Method::POST,
            "/v1/users/{user}/role",
            ADMINISTER,
            "setUserRole",
            "Give a user another role, and end their sessions",
            set_role,
        )
        .returns::<ControlOutcome>()
        .body::<RoleInput>(),
        Route::new(
            Method::POST,
            "/v1/users/{user}/disable",
            ADMINISTER,
            "disableUser",
            "Accept a user no longer, and end their sessions",
            disable,
        )
        .returns::<ControlOutcome>()
        .optional_body::<NoteInput>(),
        Route::new(
            Method::POST,
            "/v1/users/{user}/enable",
            ADMINISTER,
            "enableUser",
            "Accept a disabled user again",
            enable,
        )
        .returns::<ControlOutcome>()
        .optional_body::<NoteInput>(),
        Route::new(
            Method::POST,
            "/v1/users/{user}/log-out",
            ADMINISTER,
            "endSessions",
            "End all sessions of a user",
            log_out,
        )
        .returns::<ControlOutcome>()
        .optional_body::<NoteInput>(),
    ]
}

/// Refuses what a sender with a scope may not do: users have none.
fn check(call: &Call) -> Result<(), Error> {
    no_query(call)?;
    call.principal.check_unlimited("users")
}

/// The answer to a change of the user in the path.
fn changed(call: &Call, outcome: ControlOutcome) -> Answer {
    Reply::json(&accepted(outcome, &format!("user {:?}", call.path("user")))?)
}

async fn list(call: Call) -> Answer {
    check(&call)?;
    let users = call.operator().users().await?;
    Reply::json_at(&users, call.engine().inspect().clock().await?)
}

input! {
    /// A user to be created.
    UserInput {
        /// The name, which no user or token ever had: the audit log has it as the author.
        name: String,
        /// What the user may do: viewer, operator or admin.
        role: Role,
        /// The password, of at least 10 characters.
        password: Secret,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn create(call: Call) -> Answer {
    check(&call)?;
    let UserInput { name, role, password: Secret(password), note } = call.body()?;
    let created = call.control(note).create_user(&name, role, &password).await?;
    let user = created.map_err(|why| Error::of_text(ErrorKind::Conflict, &why))?;
    Reply::json_with(StatusCode::CREATED, &user)
}

input! {
    /// Another password.
    PasswordInput {
        /// The password, of at least 10 characters.
        password: Secret,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn set_password(call: Call) -> Answer {
    check(&call)?;
    let PasswordInput { password: Secret(password), note } = call.body()?;
    let outcome = call.control(note).set_password(call.path("user"), &password).await?;
    changed(&call, outcome)
}

input! {
    /// Another role.
    RoleInput {
        /// What the user may do: viewer, operator or admin.
        role: Role,
        /// The reason, for the audit log.
        note: Option<String>,
    }
}

async fn set_role(call: Call) -> Answer {
    check(&call)?;
    let RoleInput { role, note } = call.body()?;
    let outcome = call.control(note).set_role(call.path("user"), role).await?;
    changed(&call, outcome)
}

async fn disable(call: Call) -> Answer {
    check(&call)?;
    let NoteInput { note } = call.optional_body()?;
    let outcome = call.control(note).disable_user(call.path("user")).await?;
    changed(&call, outcome)
}

async fn enable(call: Call) -> Answer {
    check(&call)?;
    let NoteInput { note } = call.optional_body()?;
    let outcome = call.control(note).enable_user(call.path("user")).await?;
    changed(&call, outcome)
}

async fn log_out(call: Call) -> Answer {
    check(&call)?;
    let NoteInput { note } = call.optional_body()?;
    let outcome = call.control(note).end_sessions(call.path("user")).await?;
    changed(&call, outcome)
}
