//! How far a long operation is: a bar that moves where there is a terminal, a line now and then where not.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::out;

/// How often a line says how far it is, where there is no terminal.
const EVERY: Duration = Duration::from_secs(5);

pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    total: Option<u64>,
    /// Of what: jobs, children.
    what: &'static str,
    said: Instant,
}

impl Progress {
    /// Of so many jobs, as far as that is known.
    pub(crate) fn new(total: Option<u64>) -> Progress {
        Progress::of(total, "jobs")
    }

    /// Of so many of something else.
    pub(crate) fn of(total: Option<u64>, what: &'static str) -> Progress {
        let bar = console::Term::stderr().is_term().then(|| {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
            let template = match total {
                Some(_) => "  {bar:30} {human_pos}/{human_len} WHAT  {msg}",
                None => "  {spinner} {human_pos} WHAT  {msg}",
            };
            let style = ProgressStyle::with_template(&template.replace("WHAT", what));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─"));
            bar
        });
        Progress { bar, total, what, said: Instant::now() }
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
                let (jobs, total) = (out::thousands(jobs), total.unwrap_or_default());
                out::note(&format!("{jobs}{total} {}, {detail}", self.what));
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
