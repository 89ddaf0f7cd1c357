//! Other processes of a workload: this same program, started again.
//!
//! A helper prints `ready` once it works. It then reads commands from its standard input, one per line, and echoes each after it has
//! carried it out. It ends when its standard input is closed, which also happens when the bench dies.

use std::{
    path::Path,
    process::{ExitCode, Stdio},
};

use anyhow::{Context, bail};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::out;

/// A helper process.
pub(super) struct Helper {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Helper {
    /// Starts a hidden workload on a store, with a file that it may write to; returns when it works.
    pub(super) async fn start(workload: &str, url: &str, record: &Path) -> anyhow::Result<Helper> {
        let mut child = Command::new(std::env::current_exe().context("this program's own path")?)
            .args(["bench", workload, "--store", url, "--record"])
            .arg(record)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting another process")?;
        let stdin = child.stdin.take().context("the other process's input")?;
        let stdout = BufReader::new(child.stdout.take().context("the other process's output")?).lines();
        let mut helper = Helper { child, stdin, stdout };
        helper.expect_line("ready").await?;
        Ok(helper)
    }

    async fn expect_line(&mut self, command: &str) -> anyhow::Result<()> {
        match self.stdout.next_line().await? {
            Some(line) if line == command => Ok(()),
            Some(line) => bail!("another process of this bench printed {line:?} instead of {command:?}"),
            None => bail!("another process of this bench ended early; its output is above"),
        }
    }

    /// Sends a command, and returns when the helper has carried it out.
    pub(super) async fn send(&mut self, command: &str) -> anyhow::Result<()> {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await?;
        self.expect_line(command).await
    }

    /// Kills it as `kill -9` does.
    pub(super) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("killing another process of this bench")
    }

    /// Closes its standard input, and waits until it has ended.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let Helper { mut child, stdin, stdout } = self;
        drop(stdin);
        let status = child.wait().await?;
        drop(stdout);
        anyhow::ensure!(status.success(), "another process of this bench failed: {status}");
        Ok(())
    }
}

/// The helper's side: prints that it is ready, and carries out commands until its standard input is closed.
pub(super) async fn serve_commands(mut act: impl FnMut(&str)) -> anyhow::Result<ExitCode> {
    serve_commands_with(async |command: &str| {
        act(command);
        Ok(())
    })
    .await
}

/// The same for commands that take time or may fail.
pub(super) async fn serve_commands_with(
    mut act: impl AsyncFnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    out::print("ready\n")?;
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    while let Some(command) = commands.next_line().await? {
        act(&command).await?;
        out::print(&(command + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
