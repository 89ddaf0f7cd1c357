//! `windlass users`: creates, lists and changes the users of the server.

use std::{path::PathBuf, process::ExitCode};

use windlass::{Time, model::Role, store::User};

use crate::{args::Actor, client::UserAction, durations, out, outcome, password, program::Program, table};

/// Create, list and change the users who log in to `serve`
///
/// A user is a person with a name, a password and a role. The store keeps a slow hash of the password. Users are disabled and never
/// deleted, so that a name in the audit log means one person.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    List(List),
    Create(Create),
    Password(NewPassword),
    Role(NewRole),
    Disable(Disable),
    Enable(Enable),
    LogOut(LogOut),
}

/// List all users, disabled ones included
#[derive(clap::Args)]
struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Create a user
#[derive(clap::Args)]
struct Create {
    /// The name, which no user or token ever had: the audit log has it as the author
    name: String,
    /// What the user may do: viewer reads, operator also submits and changes jobs, admin also deletes jobs and manages users and tokens
    #[arg(long, default_value = "viewer", value_parser = role)]
    role: Role,
    #[command(flatten)]
    password: Password,
    #[command(flatten)]
    actor: Actor,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Give a user another password, and end their sessions
#[derive(clap::Args)]
struct NewPassword {
    /// The user's name
    user: String,
    #[command(flatten)]
    password: Password,
    #[command(flatten)]
    actor: Actor,
}

/// Give a user another role, and end their sessions
#[derive(clap::Args)]
struct NewRole {
    /// The user's name
    user: String,
    /// What the user may do: viewer, operator or admin
    #[arg(value_parser = role)]
    role: Role,
    #[command(flatten)]
    actor: Actor,
}

/// Accept a user no longer, and end their sessions
#[derive(clap::Args)]
struct Disable {
    /// The user's name
    user: String,
    #[command(flatten)]
    actor: Actor,
}

/// Accept a disabled user again
#[derive(clap::Args)]
struct Enable {
    /// The user's name
    user: String,
    #[command(flatten)]
    actor: Actor,
}

/// End all sessions of a user, who may log in again
#[derive(clap::Args)]
struct LogOut {
    /// The user's name
    user: String,
    #[command(flatten)]
    actor: Actor,
}

/// Where a password comes from. Not from the command line, which every user of the machine can see.
#[derive(clap::Args)]
struct Password {
    /// A file with the password, of at least 10 characters, which only you may read; - for standard input [default: ask for it]
    #[arg(long, value_name = "PATH")]
    password_file: Option<PathBuf>,
}

/// Parses a role that a user may have.
fn role(text: &str) -> Result<Role, String> {
    let known = text.parse().ok().filter(|role| *role != Role::Worker);
    known.ok_or_else(|| format!("{text:?} is not a role of users; use viewer, operator or admin"))
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::List(args) => list(args, program).await,
        Command::Create(args) => create(args, program).await,
        Command::Password(args) => {
            let action = UserAction::SetPassword(args.password.read(&args.user).await?);
            change(&args.user, &action, &args.actor, "has another password", program).await
        }
        Command::Role(args) => {
            let (action, done) = (UserAction::SetRole(args.role), format!("is {} now", args.role));
            change(&args.user, &action, &args.actor, &done, program).await
        }
        Command::Disable(args) => {
            change(&args.user, &UserAction::Disable, &args.actor, "disabled", program).await
        }
        Command::Enable(args) => {
            change(&args.user, &UserAction::Enable, &args.actor, "enabled", program).await
        }
        Command::LogOut(args) => {
            change(&args.user, &UserAction::EndSessions, &args.actor, "logged out", program).await
        }
    }
}

impl Password {
    async fn read(&self, user: &str) -> anyhow::Result<String> {
        password::read_password(self.password_file.as_deref(), user).await
    }
}

async fn create(args: Create, program: &Program) -> anyhow::Result<ExitCode> {
    let client = program.client_or_create().await?;
    let password = args.password.read(&args.name).await?;
    let user = client.create_user(&args.name, args.role, &password, &args.actor).await?;
    if args.json {
        out::print_json(&user)?;
    } else {
        out::print(&format!("user {}: created with the role {}\n", out::plain(&user.name), user.role))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn change(
    user: &str,
    action: &UserAction,
    actor: &Actor,
    done: &str,
    program: &Program,
) -> anyhow::Result<ExitCode> {
    let outcome = program.client().await?.change_user(user, action, actor).await?;
    outcome::print(program, "user", user, &outcome, done)
}

async fn list(args: List, program: &Program) -> anyhow::Result<ExitCode> {
    let (users, now) = program.client().await?.users().await?;
    if args.json {
        out::print_json(&users)?;
    } else if users.is_empty() {
        out::print(&format!(
            "no users; create one with `{} users create NAME --role viewer`\n",
            program.name
        ))?;
    } else {
        out::print(&render(&users, now))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(users: &[User], now: Time) -> String {
    let columns = [
        table::Column { min_width: Some(6), ..table::column("NAME") },
        table::column("ROLE"),
        table::column("STATE"),
        table::column("LAST LOG-IN"),
        table::Column { expendable: 1, ..table::column("CREATED") },
    ];
    let ago = |at: Time| durations::relative(at, now);
    let row = |user: &User| {
        let state = user.disabled_at.map_or("enabled".to_owned(), |at| format!("disabled {}", ago(at)));
        let last_login = user.last_login_at.map_or("never".to_owned(), ago);
        let created = format!("{} by {}", ago(user.created_at), out::plain(&user.created_by));
        vec![out::plain(&user.name), user.role.to_string(), state, last_login, created]
    };
    table::render(&columns, &users.iter().map(row).collect::<Vec<_>>(), out::width())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_no_worker() {
        assert_eq!(role("admin"), Ok(Role::Admin));
        for bad in ["worker", "root", ""] {
            assert!(role(bad).expect_err("refused").contains("viewer, operator or admin"), "{bad}");
        }
    }
}
