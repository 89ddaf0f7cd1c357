//! The progress of a long operation: a bar on a terminal, otherwise a line every few seconds.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::out;

/// How often a line is printed without a terminal: often enough to see that it works, rarely enough for a log.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    total: Option<u64>,
    /// What is counted: jobs, children.
    unit: &'static str,
    printed_at: Instant,
}

impl Progress {
    /// Counts jobs; `total` is `None` if it is not known.
    pub(crate) fn of_jobs(total: Option<u64>) -> Progress {
        Progress::new(total, "jobs")
    }

    pub(crate) fn new(total: Option<u64>, unit: &'static str) -> Progress {
        let bar = console::Term::stderr().is_term().then(|| {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
            let template = match total {
                Some(_) => "  {bar:30} {human_pos}/{human_len} UNIT  {msg}",
                None => "  {spinner} {human_pos} UNIT  {msg}",
            };
            let style = ProgressStyle::with_template(&template.replace("UNIT", unit));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─"));
            bar
        });
        Progress { bar, total, unit, printed_at: Instant::now() }
    }

    /// Shows the position and a detail, for example the outcomes so far.
    pub(crate) fn update(&mut self, position: u64, detail: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(position);
                bar.set_message(detail.to_owned());
            }
            None if self.printed_at.elapsed() >= LINE_INTERVAL => {
                self.printed_at = Instant::now();
                let total = self.total.map(|total| format!(" of {}", out::thousands(total)));
                let (position, total) = (out::thousands(position), total.unwrap_or_default());
                out::note(&format!("{position}{total} {}, {detail}", self.unit));
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
