//! States: a tone, an icon with a shape of its own, and a word. None of them stands without the other two.

use askama::{Template, filters::HtmlSafe};
use windlass::State;

use crate::pages::icon::Icon;

/// The colour of something, by its meaning. It is the class that sets the colours of text, grounds and bars.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tone {
    /// It moves.
    Run,
    /// It ended as it should.
    Ok,
    /// It failed, or nothing happens until someone acts.
    Bad,
    /// It will need someone, or someone stopped it.
    Warn,
    /// It waits without a slot.
    Wait,
    /// Nothing to say: a long queue is not an error.
    Idle,
}

impl Tone {
    /// The class.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Tone::Run => "t-run",
            Tone::Ok => "t-ok",
            Tone::Bad => "t-bad",
            Tone::Warn => "t-warn",
            Tone::Wait => "t-wait",
            Tone::Idle => "t-idle",
        }
    }
}

impl From<State> for Tone {
    fn from(state: State) -> Tone {
        match state {
            State::Scheduled | State::Ready | State::Cancelled => Tone::Idle,
            State::Running => Tone::Run,
            State::Waiting => Tone::Wait,
            State::Done => Tone::Ok,
            State::Failed => Tone::Bad,
        }
    }
}

/// A state in a row or a head: icon and word.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(
    source = "<span class=\"pill {{ tone.class() }}{% if boxed %} box{% endif %}\">{{ icon }}{{ word }}</span>",
    ext = "html"
)]
pub(crate) struct Pill {
    pub(crate) tone: Tone,
    pub(crate) icon: Icon,
    pub(crate) word: String,
    /// Whether it has a ground of its own, as in the head of a page.
    pub(crate) boxed: bool,
}

impl HtmlSafe for Pill {}

impl Pill {
    pub(crate) fn new(tone: Tone, icon: Icon, word: &str) -> Pill {
        Pill { tone, icon, word: word.to_owned(), boxed: false }
    }

    /// The state of a job.
    pub(crate) fn state(state: State) -> Pill {
        Pill::new(state.into(), Pill::icon_of(state), &state.to_string())
    }

    /// The icon of a state.
    pub(crate) fn icon_of(state: State) -> Icon {
        match state {
            State::Scheduled => Icon::Scheduled,
            State::Ready => Icon::Ready,
            State::Running => Icon::Running,
            State::Waiting => Icon::Waiting,
            State::Done => Icon::Done,
            State::Failed => Icon::Failed,
            State::Cancelled => Icon::Cancelled,
        }
    }

    /// Someone paused it, or its queue.
    pub(crate) fn paused() -> Pill {
        Pill::new(Tone::Warn, Icon::Paused, "paused")
    }

    /// It is ready, and a limit, a serial key or a cancel request holds it.
    pub(crate) fn held() -> Pill {
        Pill::new(Tone::Idle, Icon::Held, "held")
    }

    /// Nothing happens until someone acts.
    pub(crate) fn blocked() -> Pill {
        Pill::new(Tone::Bad, Icon::Blocked, "blocked")
    }

    /// An attempt failed, and the next one is later.
    pub(crate) fn backing_off() -> Pill {
        Pill::new(Tone::Idle, Icon::Scheduled, "backing off")
    }

    /// A worker that ends its jobs and claims no more.
    pub(crate) fn draining() -> Pill {
        Pill::new(Tone::Warn, Icon::Drain, "draining")
    }

    /// A worker that has not renewed its lease.
    pub(crate) fn lost() -> Pill {
        Pill::new(Tone::Bad, Icon::Lost, "lost")
    }

    /// The same with a ground.
    pub(crate) fn boxed(mut self) -> Pill {
        self.boxed = true;
        self
    }

    /// The same with another word: "consumed by pay", "1,204 failed".
    pub(crate) fn saying(mut self, word: &str) -> Pill {
        self.word = word.to_owned();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_a_shape_and_a_word() {
        let mut shapes: Vec<&str> = State::ALL.iter().map(|state| Pill::icon_of(*state).name()).collect();
        let others = [Pill::paused(), Pill::held(), Pill::blocked(), Pill::draining(), Pill::lost()];
        shapes.extend(others.iter().map(|pill| pill.icon.name()));
        let count = shapes.len();
        shapes.sort_unstable();
        shapes.dedup();
        assert_eq!(shapes.len(), count, "two states have one shape");
        assert_eq!(
            Pill::state(State::Failed).boxed().to_string(),
            "<span class=\"pill t-bad box\"><svg class=\"i\" aria-hidden=\"true\"><use href=\"#i-failed\"/></svg>failed</span>"
        );
        assert!(Pill::paused().saying("<b>").to_string().contains("&#60;b&#62;"));
    }
}
