//! Decodes the output of a job that has ended.

use serde::de::DeserializeOwned;
use windlass_model::JobId;
use windlass_store::JobEnd;

use crate::{JobError, codec::Codecs};

/// Decodes the output of a job that has ended. The error says why it has none.
pub fn decode_output<O: DeserializeOwned, E>(
    id: JobId,
    ended: JobEnd,
    codecs: &Codecs,
) -> Result<O, JobError<E>> {
    match ended {
        JobEnd::Done(output) => {
            let plain = codecs.decode(&output).map_err(|source| JobError::Unreadable { id, source })?;
            serde_json::from_slice(&plain).map_err(|source| JobError::Undecodable { id, source })
        }
        JobEnd::Failed { reason, failure } => Err(JobError::failed(reason, failure)),
        JobEnd::Cancelled(failure) => Err(JobError::Cancelled(failure)),
        JobEnd::Gone => Err(JobError::Gone(id)),
    }
}
