//! What the demo shows while it runs: a bar that moves where there is a terminal, a line now and then where not.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::out;

/// How often a progress line is printed without a terminal.
const EVERY: Duration = Duration::from_secs(2);

pub(super) struct Screen {
    bar: Option<ProgressBar>,
    started: Instant,
    total: u64,
    printed_at: Instant,
}

impl Screen {
    pub(super) fn new(total: u64) -> Screen {
        let bar = console::Term::stderr().is_term().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("  {bar:30} {human_pos}/{human_len} tasks  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─"));
            bar
        });
        Screen { bar, started: Instant::now(), total, printed_at: Instant::now() }
    }

    /// Something happened.
    pub(super) fn event(&self, text: &str) {
        let line = format!("  {:>5.1} s  {text}", self.started.elapsed().as_secs_f64());
        match &self.bar {
            Some(bar) => bar.println(line),
            None => out::note(&line),
        }
    }

    /// So far it is, at this rate.
    pub(super) fn progress(&mut self, ended: u64, rate: f64) {
        let rate = format!("{}/s", out::thousands(rate as u64));
        match &self.bar {
            Some(bar) => {
                bar.set_position(ended.min(self.total));
                bar.set_message(rate);
            }
            None if self.printed_at.elapsed() >= EVERY => {
                self.printed_at = Instant::now();
                self.event(&format!(
                    "{} of {} tasks, {rate}",
                    out::thousands(ended),
                    out::thousands(self.total)
                ));
            }
            None => {}
        }
    }

    /// The show is over.
    pub(super) fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
