//! What steps and transactions have in common of their undos: how one is made, and registered once its call has succeeded.

use std::{future::Future, sync::Arc};

use serde::de::DeserializeOwned;
use windlass_model::{Failure, Payload, failure::class, journal::CallKind};

use super::{
    Boxed, call_retry::CallRetry, core::Core, journal::Ident, state::Undo, step_id::step_id, undo::UndoCx,
};
use crate::codec::Codecs;

/// Undoes a call, given its encoded result.
pub(super) type UndoBody =
    Box<dyn FnMut(UndoCx, &Payload, &Codecs) -> Boxed<'static, Result<(), Failure>> + Send>;

/// Makes the undo of a call that returns a `T`.
pub(super) fn undo_body<T, U, Fut>(mut undo: U) -> UndoBody
where
    T: DeserializeOwned,
    U: FnMut(UndoCx, T) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 'static,
{
    Box::new(move |cx, payload, codecs| {
        let decoded = codecs.decode(payload).map_err(|error| error.to_string());
        let decoded =
            decoded.and_then(|plain| serde_json::from_slice(&plain).map_err(|error| error.to_string()));
        match decoded {
            Ok(result) => Box::pin(undo(cx, result)),
            Err(error) => {
                let text = format!("what the call returned does not decode ({error})");
                Box::pin(std::future::ready(Err(Failure::stop(text).class(class::UNDECODABLE))))
            }
        }
    })
}

/// Returns the id of a call's next run.
pub(super) fn id_of(core: &Core, ident: &Ident) -> String {
    let undone = core.lock().journal.undo.count(ident);
    let job = &core.job;
    step_id(job.id, undone, job.stage.as_deref(), &ident.0, ident.1.as_deref())
}

/// Registers the undo of a call that has succeeded, with this result at this place in the journal.
pub(super) fn register_undo(
    core: &Core,
    call_kind: CallKind,
    ident: Ident,
    retry: CallRetry,
    mut undo: UndoBody,
    (seq, payload): (i32, Payload),
) {
    let codecs = Arc::clone(&core.services.codecs);
    let run = Box::new(move |cx| undo(cx, &payload, &codecs));
    let step_id = id_of(core, &ident);
    core.lock().undos.push(Undo { seq, call_kind, ident, step_id, retry, run });
}
