//! `windlass tokens`: creates, lists and revokes tokens of the HTTP API.

use std::{io::Write, os::unix::fs::OpenOptionsExt, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use windlass::{
    Time,
    model::{Role, Scope},
    operate::TokenRequest,
    store::Token,
};

use crate::{args::Actor, durations, out, outcome, program::Program, table};

/// Create, list and revoke the tokens of clients of `serve`
///
/// A token is a secret that a client sends as `Authorization: Bearer TOKEN`. The store keeps a hash of it, so it is shown once.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Create(Create),
    List(List),
    Revoke(Revoke),
}

/// Create a token, and print it once
#[derive(clap::Args)]
struct Create {
    /// Its name, never used before: the audit log has it as the author
    name: String,
    /// What it may do: viewer reads, operator also submits and changes jobs, admin also deletes jobs and manages users and tokens,
    /// worker runs jobs on another host and does nothing else
    #[arg(long, default_value = "viewer")]
    role: Role,
    /// Only jobs of this kind; may be repeated
    #[arg(long)]
    kind: Vec<String>,
    /// Only jobs in this queue; may be repeated
    #[arg(long)]
    queue: Vec<String>,
    /// How long it works, e.g. 90d [default: until it is revoked]
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    expires_in: Option<Duration>,
    /// Write it to this new file, which only you can read, instead of printing it
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    #[command(flatten)]
    actor: Actor,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// List all tokens, without their secrets
#[derive(clap::Args)]
struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Revoke a token: requests with it are refused from now on
#[derive(clap::Args)]
struct Revoke {
    /// Its name or its id
    token: String,
    #[command(flatten)]
    actor: Actor,
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Create(args) => create(args, program).await,
        Command::List(args) => list(args, program).await,
        Command::Revoke(args) => {
            let client = program.client().await?;
            let revoked = client.revoke_token(&args.token, &args.actor).await?;
            outcome::print(program, "token", &args.token, &revoked, "revoked")
        }
    }
}

async fn create(args: Create, program: &Program) -> anyhow::Result<ExitCode> {
    let client = program.client_or_create().await?;
    let scope = Scope { kinds: args.kind, queues: args.queue };
    // Before the token: one that cannot be written down would be useless.
    let file = args.file.as_ref().map(|path| {
        let options = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        options.with_context(|| format!("the file {} cannot be created; name a new one", path.display()))
    });
    let mut file = file.transpose()?;
    let request = TokenRequest { name: args.name, role: args.role, scope, expires_in: args.expires_in };
    let created = client.create_token(&request, &args.actor).await;
    if created.is_err()
        && let Some(path) = &args.file
    {
        // It is empty.
        let _ = std::fs::remove_file(path);
    }
    let (token, text) = created?;
    if let Some(file) = &mut file {
        file.write_all(format!("{text}\n").as_bytes()).context("the token cannot be written to its file")?;
    }
    let is_shown = file.is_none();
    if args.json {
        let mut answer = serde_json::to_value(&token)?;
        if is_shown {
            answer["text"] = text.into();
        }
        out::print_json(&answer)?;
    } else if is_shown {
        out::print(&format!("{text}\n"))?;
        out::note("keep it now: it cannot be shown again");
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(args: List, program: &Program) -> anyhow::Result<ExitCode> {
    let (tokens, now) = program.client().await?.tokens().await?;
    if args.json {
        out::print_json(&tokens)?;
    } else if tokens.is_empty() {
        out::print(&format!(
            "no tokens; create one with `{} tokens create NAME --role viewer`\n",
            program.name
        ))?;
    } else {
        out::print(&render(&tokens, now))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(tokens: &[Token], now: Time) -> String {
    let columns = [
        table::Column { min_width: Some(6), ..table::column("NAME") },
        table::column("ROLE"),
        table::Column { min_width: Some(8), ..table::column("SCOPE") },
        table::column("STATE"),
        table::column("LAST USED"),
        table::Column { expendable: 1, ..table::column("CREATED") },
        table::Column { expendable: 2, ..table::column("ID") },
    ];
    let row = |token: &Token| {
        let state = match (token.why_refused(now), token.revoked_at, token.expires_at) {
            (Some(_), Some(at), _) => format!("revoked {}", durations::relative(at, now)),
            (Some(_), None, _) => "expired".to_owned(),
            (None, _, Some(at)) => format!("expires {}", durations::relative(at, now)),
            (None, _, None) => "valid".to_owned(),
        };
        let used = token.last_used_at.map_or("never".to_owned(), |at| durations::relative(at, now));
        let created =
            format!("{} by {}", durations::relative(token.created_at, now), out::plain(&token.created_by));
        vec![
            out::plain(&token.name),
            token.role.to_string(),
            scope(&token.scope),
            state,
            used,
            created,
            token.id.clone(),
        ]
    };
    table::render(&columns, &tokens.iter().map(row).collect::<Vec<_>>(), out::width())
}

fn scope(scope: &Scope) -> String {
    let part =
        |what: &str, names: &[String]| (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")));
    let parts: Vec<String> =
        [part("kinds", &scope.kinds), part("queues", &scope.queues)].into_iter().flatten().collect();
    if parts.is_empty() { "all jobs".to_owned() } else { out::plain(&parts.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_one_cell() {
        assert_eq!(scope(&Scope::default()), "all jobs");
        let both = Scope { kinds: vec!["a".into(), "b".into()], queues: vec!["q".into()] };
        assert_eq!(scope(&both), "kinds a, b; queues q");
    }
}
