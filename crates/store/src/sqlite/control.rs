//! What people do to work that is there.

use windlass_model::JobId;

use super::Sqlite;
use crate::{Act, By, Control, Did, Error, Fut, Now, Prune, Pruned, Rule};

fn stub<'a, T: Send + 'a>() -> Fut<'a, T> {
    Box::pin(std::future::ready(Err(Error::Fault("not there yet".into()))))
}

impl Control for Sqlite {
    fn act<'a>(&'a self, _now: Now, _jobs: &'a [JobId], _act: Act, _by: &'a By) -> Fut<'a, Vec<Did>> {
        stub()
    }

    fn rule<'a>(&'a self, _now: Now, _rule: &'a Rule, _by: &'a By) -> Fut<'a, Did> {
        stub()
    }

    fn note<'a>(&'a self, _now: Now, _action: &'a str, _subject: &'a str, _by: &'a By) -> Fut<'a, ()> {
        stub()
    }

    fn prune<'a>(&'a self, _now: Now, _prune: &'a Prune) -> Fut<'a, Pruned> {
        stub()
    }
}
