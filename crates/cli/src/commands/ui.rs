//! `windlass ui`: opens the dashboard of a server in the browser.

use std::{
    ffi::OsStr,
    io::IsTerminal,
    process::{ExitCode, Stdio},
    time::Duration,
};

use anyhow::Context;
use tokio::process::Command;
use windlass_http::encode_segment;

use crate::{
    client::{Client, needs_login},
    config::Settings,
    out,
    program::Program,
    resolve,
};

/// Where `windlass serve` and `windlass demo` listen by default.
const DEFAULT_SERVER: &str = "http://127.0.0.1:7077";
/// How long a program that opens pages may take to say that it cannot. Some run until the browser is closed.
const OPENED_AFTER: Duration = Duration::from_secs(2);

/// Open the dashboard in the browser, or the page of a job
///
/// It is the dashboard of the server that --server or the settings name, or else of a server at http://127.0.0.1:7077. Where there is no
/// browser, or standard output is not a terminal, the address is printed and nothing is opened.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job to show: its id, kind/key, its key, or its name as a child of a branch
    job: Option<String>,
}

/// Names the server whose dashboard it is, if no setting does.
pub(crate) fn complete(settings: &mut Settings) {
    settings.remote.url.get_or_insert_with(|| DEFAULT_SERVER.to_owned());
}

pub(crate) async fn run(args: Args, program: &Program) -> anyhow::Result<ExitCode> {
    let server = program.server()?;
    let missing = || {
        format!(
            "no dashboard answers; `{0} serve` serves that of your store, `{0} demo` serves an example, and --server names another server",
            program.name
        )
    };
    server.check_health().await.with_context(missing)?;
    let address = server.url().trim_end_matches('/').to_owned();
    let path = path(args.job.as_deref(), &Client::Server(server), program).await?;
    let address = format!("{address}{path}");
    if !std::io::stdout().is_terminal() {
        out::print(&format!("{address}\n"))?;
    } else if open(&address).await {
        out::print(&format!("opened {address}\n"))?;
    } else {
        out::print(&format!("no browser can be opened here; open {address} in one\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The path of the page.
async fn path(job: Option<&str>, client: &Client, program: &Program) -> anyhow::Result<String> {
    let Some(name) = job else { return Ok("/".to_owned()) };
    match resolve::job_or_block(name, client, program).await {
        Ok(id) => Ok(format!("/jobs/{id}")),
        // The reader logs in with a name and a password: the server finds the job once they have.
        Err(error) if needs_login(&error) => Ok(format!("/find?q={}", encode_segment(name))),
        Err(error) => Err(error),
    }
}

/// Opens a page with whatever this system opens pages with. Returns whether there is such a program.
async fn open(address: &str) -> bool {
    // Without a screen `xdg-open` opens a browser in the terminal, if it finds one.
    let has_screen =
        ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"].iter().any(|name| std::env::var_os(name).is_some());
    match std::env::consts::OS {
        "macos" => open_with("open", &[address]).await,
        // The first argument in quotes is the title of a window.
        "windows" => open_with("cmd", &["/c", "start", "", address]).await,
        _ => has_screen && open_with("xdg-open", &[address]).await,
    }
}

/// Whether a program starts, and does not fail at once.
async fn open_with(program: impl AsRef<OsStr>, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    match tokio::time::timeout(OPENED_AFTER, child.wait()).await {
        Ok(ended) => ended.is_ok_and(|status| status.success()),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_is_missing_or_fails_opens_nothing() {
        assert!(open_with("true", &["http://127.0.0.1:7077/"]).await);
        assert!(!open_with("false", &[]).await);
        assert!(!open_with("windlass-no-such-program", &[]).await);
    }

    #[test]
    fn a_server_that_the_settings_name_is_used() {
        let mut settings = Settings::default();
        complete(&mut settings);
        assert_eq!(settings.remote.url.as_deref(), Some(DEFAULT_SERVER));
        settings.remote.url = Some("https://jobs.example".into());
        complete(&mut settings);
        assert_eq!(settings.remote.url.as_deref(), Some("https://jobs.example"));
    }
}
