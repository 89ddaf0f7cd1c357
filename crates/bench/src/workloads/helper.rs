//! Other processes of a workload: this same program, started again.
//!
//! A helper says `ready` on its standard output once it works, then a word for each word it is told on its standard
//! input, and ends when that is closed, which it also is when the bench dies.

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

/// A helper as the bench holds it.
pub(super) struct Helper {
    child: Child,
    ask: ChildStdin,
    told: Lines<BufReader<ChildStdout>>,
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
        let ask = child.stdin.take().context("the other process's input")?;
        let told = BufReader::new(child.stdout.take().context("the other process's output")?).lines();
        let mut helper = Helper { child, ask, told };
        helper.hears("ready").await?;
        Ok(helper)
    }

    async fn hears(&mut self, word: &str) -> anyhow::Result<()> {
        match self.told.next_line().await? {
            Some(line) if line == word => Ok(()),
            Some(line) => bail!("another process of this bench said {line:?} instead of {word:?}"),
            None => bail!("another process of this bench ended early; what it said is above"),
        }
    }

    /// Tells it a word, and returns when it has acted on it.
    pub(super) async fn tell(&mut self, word: &str) -> anyhow::Result<()> {
        self.ask.write_all(format!("{word}\n").as_bytes()).await?;
        self.hears(word).await
    }

    /// Kills it as `kill -9` does.
    pub(super) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("killing another process of this bench")
    }

    /// Has it end, and waits until it has.
    pub(super) async fn dismiss(self) -> anyhow::Result<()> {
        let Helper { mut child, ask, told } = self;
        drop(ask);
        let status = child.wait().await?;
        drop(told);
        anyhow::ensure!(status.success(), "another process of this bench ended badly: {status}");
        Ok(())
    }
}

/// The helper's side: says that it works, and acts on each word until there are no more.
pub(super) async fn obey(mut act: impl FnMut(&str)) -> anyhow::Result<ExitCode> {
    obey_with(async |word: &str| {
        act(word);
        Ok(())
    })
    .await
}

/// The same for what takes time, or may fail.
pub(super) async fn obey_with(
    mut act: impl AsyncFnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    out::print("ready\n")?;
    let mut words = BufReader::new(tokio::io::stdin()).lines();
    while let Some(word) = words.next_line().await? {
        act(&word).await?;
        out::print(&(word + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
