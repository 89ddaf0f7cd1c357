//! Who acts, and why: the name and the note that the audit log keeps.

use anyhow::bail;
use windlass::{Control, Engine, Scheduling};

#[derive(clap::Args)]
pub(crate) struct Actor {
    /// Who does this, for the audit log [default: your user name; of a server always the name of the token]
    #[arg(long = "by", value_name = "NAME")]
    actor: Option<String>,
    /// Why, for the audit log and for `why`
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl Actor {
    /// Whether --by or --note was given.
    pub(crate) fn is_given(&self) -> bool {
        self.actor.is_some() || self.note.is_some()
    }

    /// Sets a schedule in this actor's name.
    pub(crate) fn schedules<'a>(&self, schedule: Scheduling<'a>) -> Scheduling<'a> {
        let schedule = schedule.by(self.name());
        match &self.note {
            Some(note) => schedule.note(note),
            None => schedule,
        }
    }

    /// Acts on jobs and queues in this actor's name.
    pub(crate) fn control(&self, engine: &Engine) -> Control {
        let control = engine.control(self.name());
        match &self.note {
            Some(note) => control.note(note),
            None => control,
        }
    }

    /// The note, for a server. Its audit log has the name of the token as the author.
    pub(crate) fn note_for_server(&self) -> anyhow::Result<Option<&str>> {
        if self.actor.is_some() {
            bail!(
                "--by names the author in a store; a server records the name of the token, so leave it out"
            );
        }
        Ok(self.note.as_deref())
    }

    fn name(&self) -> String {
        self.actor.clone().unwrap_or_else(user_name)
    }
}

fn user_name() -> String {
    let env = |name: &str| std::env::var(name).ok().filter(|user| !user.trim().is_empty());
    env("USER").or_else(|| env("LOGNAME")).or_else(passwd_name).unwrap_or_else(|| "unknown".to_owned())
}

/// The name of this process's user in /etc/passwd.
fn passwd_name() -> Option<String> {
    let uid = rustix::process::getuid().as_raw().to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut users = passwd.lines().map(|line| line.split(':').collect::<Vec<&str>>());
    let user = users.find(|fields| fields.get(2) == Some(&uid.as_str()))?;
    Some(user[0].to_owned()).filter(|user| !user.is_empty())
}
