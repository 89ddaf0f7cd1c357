//! How far a long operation is: a bar that moves where there is a terminal, a line now and then where not.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::out;

/// How often a line says how far it is, where there is no terminal.
const EVERY: Duration = Duration::from_secs(5);

pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    total: Option<u64>,
    said: Instant,
}

impl Progress {
    /// Of so many jobs, as far as that is known.
    pub(crate) fn new(total: Option<u64>) -> Progress {
        let bar = console::Term::stderr().is_term().then(|| {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
            let template = match total {
                Some(_) => "  {bar:30} {human_pos}/{human_len} jobs  {msg}",
                None => "  {spinner} {human_pos} jobs  {msg}",
            };
            let style = ProgressStyle::with_template(template);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─"));
            bar
        });
        Progress { bar, total, said: Instant::now() }
    }

    /// So far it is; `detail` says what came of it.
    pub(crate) fn at(&mut self, jobs: u64, detail: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(jobs);
                bar.set_message(detail.to_owned());
            }
            None if self.said.elapsed() >= EVERY => {
                self.said = Instant::now();
                let total = self.total.map(|total| format!(" of {}", out::thousands(total)));
                out::note(&format!("{}{} jobs, {detail}", out::thousands(jobs), total.unwrap_or_default()));
            }
            None => {}
        }
    }

    pub(crate) fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
