//! Codecs: encrypt or compress payloads on their way to the store.
//!
//! A task sees plain JSON. A [`Codec`] encodes it into the bytes that the store keeps, and decodes it again. The number of the
//! codec is kept with each payload, so that payloads of different codecs coexist and a key can be changed without rewriting
//! rows. One codec writes, any number read: `Builder::codec` and `Builder::reads_codec`.
//!
//! What always holds: the digest that recognises a repeated submit is taken of the plain input, so a cipher may use a new nonce
//! each time; the store's size limit applies to the encoded bytes.

mod coded;
mod deflate;

use std::{any::Any, borrow::Cow, collections::BTreeMap, sync::Arc};

use windlass_model::{NewJob, Payload};

pub use coded::coded;
pub use deflate::Deflate;

/// Numbers below this one are Windlass's own: 0 is plain JSON, 1 is [`Deflate`].
pub const FIRST: u8 = 10;

/// One encoding of payloads.
///
/// Both functions are called where the submit or the attempt runs and must not block; contact a remote key service beforehand.
///
/// ```
/// # use windlass_workflow::Codec;
/// /// Inverts every byte. `examples/encrypted.rs` has a real one.
/// struct Inverted;
///
/// impl Codec for Inverted {
///     fn id(&self) -> u8 {
///         10
///     }
///
///     fn encode(&self, plain: &[u8]) -> Result<Option<Vec<u8>>, String> {
///         Ok(Some(plain.iter().map(|byte| !byte).collect()))
///     }
///
///     fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
///         Ok(bytes.iter().map(|byte| !byte).collect())
///     }
/// }
///
/// let kept = Inverted.encode(b"{}")?.expect("it encodes everything");
/// assert_eq!(Inverted.decode(&kept)?, b"{}");
/// # Ok::<(), String>(())
/// ```
pub trait Codec: Send + Sync + 'static {
    /// The number that is kept with each payload: yours are from [`FIRST`] to 255. It identifies the format and the key; a new
    /// key needs a new number.
    fn id(&self) -> u8;

    /// Encodes plain JSON; `None` keeps this payload plain. The error is for people.
    fn encode(&self, plain: &[u8]) -> Result<Option<Vec<u8>>, String>;

    /// Decodes to plain JSON. The error is for people.
    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, String>;
}

/// Why a payload cannot be written or read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// No codec of this engine has the number.
    #[error("it was written by codec {0}, which this engine does not have; add it with `.reads_codec(…)`")]
    Missing(u8),
    /// The codec that writes failed.
    #[error("codec {id} could not write it ({why})")]
    Encode {
        /// The codec's number.
        id: u8,
        /// Its message.
        why: String,
    },
    /// The codec that wrote the payload cannot read it.
    #[error("codec {id} could not read it ({why})")]
    Decode {
        /// The codec's number.
        id: u8,
        /// Its message.
        why: String,
    },
    /// The codecs were set up wrongly.
    #[error("{0}")]
    Setup(String),
}

/// The codecs of an engine: at most one that writes, and all that read.
#[derive(Clone)]
pub struct Codecs {
    writes: Option<u8>,
    known: BTreeMap<u8, Arc<dyn Codec>>,
    /// What was wrong when they were added; every use of the codecs returns it.
    setup_error: Option<String>,
}

impl Default for Codecs {
    /// Writes plain JSON. Reads compressed payloads, whether or not this engine compresses.
    fn default() -> Codecs {
        let known: [(u8, Arc<dyn Codec>); 1] = [(Deflate::ID, Arc::new(Deflate::default()))];
        Codecs { writes: None, known: BTreeMap::from(known), setup_error: None }
    }
}

impl Codecs {
    /// Adds a codec. If `writes`, it encodes all payloads from now on.
    pub fn add<C: Codec>(&mut self, codec: C, writes: bool) {
        let id = codec.id();
        let is_own = (&codec as &dyn Any).is::<Deflate>();
        if id < FIRST && !is_own {
            self.setup_error.get_or_insert(format!(
                "codec {id} has a number that is Windlass's own; choose one from {FIRST} to 255"
            ));
        } else if !is_own && self.known.contains_key(&id) {
            self.setup_error
                .get_or_insert(format!("two codecs have the number {id}; give each key and format its own"));
        } else {
            self.known.insert(id, Arc::new(codec));
            self.writes = if writes { Some(id) } else { self.writes };
        }
    }

    /// Checks whether they were set up correctly.
    pub fn check(&self) -> Result<(), Error> {
        self.setup_error.clone().map_or(Ok(()), |setup_error| Err(Error::Setup(setup_error)))
    }

    /// Whether anything but plain JSON may be written.
    fn encodes(&self) -> bool {
        self.writes.is_some() || self.setup_error.is_some()
    }

    /// Encodes the input of a job. The digest stays that of the plain input.
    pub fn encoded(&self, mut job: NewJob) -> Result<NewJob, crate::Error> {
        let plain = std::mem::take(&mut job.input.bytes);
        job.input = self
            .encode(plain)
            .map_err(|source| crate::Error::Codec { kind: job.kind.kind.clone(), source })?;
        Ok(job)
    }

    /// Encodes plain JSON.
    pub fn encode(&self, plain: Vec<u8>) -> Result<Payload, Error> {
        self.check()?;
        let Some((id, codec)) = self.writes.and_then(|id| Some((id, self.known.get(&id)?))) else {
            return Ok(Payload::json(plain));
        };
        match codec.encode(&plain) {
            Ok(Some(bytes)) => Ok(Payload { codec: id, bytes }),
            Ok(None) => Ok(Payload::json(plain)),
            Err(why) => Err(Error::Encode { id, why }),
        }
    }

    /// Decodes to plain JSON.
    pub fn decode<'a>(&self, Payload { codec: id, bytes }: &'a Payload) -> Result<Cow<'a, [u8]>, Error> {
        if *id == 0 {
            return Ok(Cow::Borrowed(bytes));
        }
        self.check()?;
        let codec = self.known.get(id).ok_or(Error::Missing(*id))?;
        codec.decode(bytes).map(Cow::Owned).map_err(|why| Error::Decode { id: *id, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reverses the bytes.
    struct Backwards(u8);

    impl Codec for Backwards {
        fn id(&self) -> u8 {
            self.0
        }

        fn encode(&self, plain: &[u8]) -> Result<Option<Vec<u8>>, String> {
            Ok((plain.len() > 1).then(|| plain.iter().rev().copied().collect()))
        }

        fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
            Ok(bytes.iter().rev().copied().collect())
        }
    }

    #[test]
    fn one_writes_and_all_read() {
        let mut codecs = Codecs::default();
        assert_eq!(codecs.encode(b"12".to_vec()), Ok(Payload::json(b"12".to_vec())));
        codecs.add(Backwards(10), true);
        let old = codecs.encode(b"12".to_vec()).expect("encoded");
        assert_eq!(old, Payload { codec: 10, bytes: b"21".to_vec() });
        codecs.add(Backwards(11), true);
        assert_eq!(codecs.encode(b"12".to_vec()).map(|p| p.codec), Ok(11));
        assert_eq!(codecs.encode(b"1".to_vec()), Ok(Payload::json(b"1".to_vec())), "left plain");
        codecs.add(Backwards(12), false);
        assert_eq!(codecs.encode(b"12".to_vec()).map(|p| p.codec), Ok(11), "12 only reads");
        for codec in [10, 11, 12] {
            assert_eq!(
                codecs.decode(&Payload { codec, bytes: b"21".to_vec() }),
                Ok(Cow::Borrowed(&b"12"[..]))
            );
        }
        assert_eq!(codecs.decode(&Payload { codec: 13, bytes: Vec::new() }), Err(Error::Missing(13)));
    }

    #[test]
    fn every_use_of_clashing_codecs_is_refused() {
        for (ids, text) in [
            (&[0][..], "codec 0 has a number that is Windlass's own; choose one from 10"),
            (&[1], "codec 1 has a number"),
            (&[10, 10], "two codecs have the number 10"),
        ] {
            let mut codecs = Codecs::default();
            ids.iter().for_each(|id| codecs.add(Backwards(*id), true));
            let error = codecs.encode(b"1".to_vec()).expect_err("refused").to_string();
            assert!(error.contains(text), "{error}");
            assert!(codecs.check().is_err() && codecs.decode(&Payload { codec: 10, bytes: vec![] }).is_err());
        }
        let mut codecs = Codecs::default();
        codecs.add(Deflate { over: 1 }, true);
        codecs.add(Deflate { over: 2 }, true);
        assert_eq!(codecs.check(), Ok(()), "its own may be set again");
    }
}
