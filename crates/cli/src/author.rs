//! In whose name a command acts: what it does is in the audit log under that name.

use windlass::{Control, Engine, Scheduling};

/// Who does it, and why.
#[derive(clap::Args)]
pub(crate) struct Author {
    /// Who does this, for the audit log [default: your user name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Why, for the audit log and for whoever asks `why`
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl Author {
    /// Describes a schedule in this name.
    pub(crate) fn schedules<'a>(&self, schedule: Scheduling<'a>) -> Scheduling<'a> {
        let schedule = schedule.by(self.name());
        match &self.note {
            Some(note) => schedule.note(note),
            None => schedule,
        }
    }

    /// Whether anything was said.
    pub(crate) fn is_given(&self) -> bool {
        self.by.is_some() || self.note.is_some()
    }

    fn name(&self) -> String {
        self.by.clone().unwrap_or_else(user)
    }

    /// Acts in this name.
    pub(crate) fn control(&self, engine: &Engine) -> Control {
        let control = engine.control(self.name());
        match &self.note {
            Some(note) => control.note(note),
            None => control,
        }
    }
}

/// Whoever runs this program.
fn user() -> String {
    let named = |name: &str| std::env::var(name).ok().filter(|user| !user.trim().is_empty());
    named("USER").or_else(|| named("LOGNAME")).or_else(listed).unwrap_or_else(|| "unknown".to_owned())
}

/// The user of this process, as the system's list names it.
fn listed() -> Option<String> {
    let number = rustix::process::getuid().as_raw().to_string();
    let list = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut users = list.lines().map(|line| line.split(':').collect::<Vec<&str>>());
    let user = users.find(|fields| fields.get(2) == Some(&number.as_str()))?;
    Some(user[0].to_owned()).filter(|user| !user.is_empty())
}
