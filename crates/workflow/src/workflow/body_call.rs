//! What calls with a body have in common: they register when they are first polled, and are abandoned when they are dropped before
//! their end.

use std::{panic::Location, sync::Arc, time::Duration};

use windlass_model::journal::CallKind;

use super::{
    call::{CallSpec, Start},
    core::Core,
    journal::Ident,
};

/// A call with a body, whatever its type. Its future drops the running body first: that may still use the call.
pub(super) struct BodyCall {
    pub(super) core: Arc<Core>,
    pub(super) call_kind: CallKind,
    pub(super) name: String,
    pub(super) key: Option<String>,
    pub(super) line: &'static Location<'static>,
    /// How long it may take until it succeeds, over all attempts.
    pub(super) within: Option<Duration>,
    /// The open call.
    id: Option<usize>,
    registered: bool,
}

impl BodyCall {
    pub(super) fn new(
        core: &Arc<Core>,
        call_kind: CallKind,
        name: &str,
        line: &'static Location<'static>,
    ) -> BodyCall {
        BodyCall {
            core: Arc::clone(core),
            call_kind,
            name: name.to_owned(),
            key: None,
            line,
            within: None,
            id: None,
            registered: false,
        }
    }

    pub(super) fn ident(&self) -> Ident {
        (self.name.as_str().into(), self.key.as_deref().map(Into::into))
    }

    /// Registers the call, unless it is. Returns it while it is open; `None` also if it was refused.
    pub(super) fn register(&mut self) -> Option<usize> {
        if !self.registered {
            self.registered = true;
            self.id = self.core.register(CallSpec {
                call_kind: self.call_kind,
                name: &self.name,
                key: self.key.as_deref(),
                line: self.line,
                start: Start::Body { within: self.within },
                detached: false,
            });
        }
        self.id
    }

    /// The open call.
    pub(super) fn id(&self) -> Option<usize> {
        self.id
    }

    /// Notes that its end was delivered.
    pub(super) fn end(&mut self) {
        self.id = None;
    }
}

impl Drop for BodyCall {
    fn drop(&mut self) {
        if !self.registered {
            self.core.note_unawaited(self.call_kind, self.line);
        }
        if let Some(id) = self.id.take() {
            self.core.abandon_call(id);
        }
    }
}
