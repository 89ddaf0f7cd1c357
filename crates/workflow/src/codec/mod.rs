//! What is done to inputs and outputs between the program and the store: encryption, compression.
//!
//! A payload is JSON when a task sees it. A [`Codec`] turns it into the bytes that the store keeps and back; the
//! number of the codec is kept with each payload, so that payloads written by different ones stand side by side and
//! a key can be changed without touching a row. One codec writes, any number read: `Engine::codec` and
//! `Engine::reads_codec`.
//!
//! What always holds: the digest that recognises a repeated submit is taken of the plain input, so that a cipher may
//! use a new nonce each time; the size limit of the store holds for the encoded bytes.

mod coded;
mod deflate;

use std::{any::Any, borrow::Cow, collections::BTreeMap, sync::Arc};

use windlass_model::{NewJob, Payload};

pub use coded::coded;
pub use deflate::Deflate;

/// Numbers below this one are Windlass's own: 0 is plain JSON, 1 is [`Deflate`].
pub const FIRST: u8 = 10;

/// One way to keep payloads.
///
/// Both calls run where the submit or the attempt runs; what takes long (a remote key service) belongs before them.
pub trait Codec: Send + Sync + 'static {
    /// The number that is kept with each payload: yours are from [`FIRST`] to 255. It stands for the format and the
    /// key; a new key is a new number.
    fn id(&self) -> u8;

    /// Turns plain JSON into what is kept; `None` keeps this payload plain. The error is for people.
    fn encode(&self, plain: &[u8]) -> Result<Option<Vec<u8>>, String>;

    /// Turns what was kept back into plain JSON. The error is for people.
    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, String>;
}

/// Why a payload cannot be written or read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// No codec of this engine has the number.
    #[error("it was written by codec {0}, which this engine does not have; add it with `.reads_codec(…)`")]
    Missing(u8),
    /// The codec that writes could not.
    #[error("codec {id} could not write it ({why})")]
    Encode {
        /// The codec's number.
        id: u8,
        /// What it says.
        why: String,
    },
    /// The codec that wrote it cannot read it.
    #[error("codec {id} could not read it ({why})")]
    Decode {
        /// The codec's number.
        id: u8,
        /// What it says.
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
    /// What was wrong when they were added, told whenever they are used.
    fault: Option<String>,
}

impl Default for Codecs {
    /// Plain JSON is written. What was compressed can be read, whether or not this engine compresses.
    fn default() -> Codecs {
        let known: [(u8, Arc<dyn Codec>); 1] = [(Deflate::ID, Arc::new(Deflate::default()))];
        Codecs { writes: None, known: BTreeMap::from(known), fault: None }
    }
}

impl Codecs {
    /// Adds a codec, which writes from now on if `writes`.
    pub fn add<C: Codec>(&mut self, codec: C, writes: bool) {
        let id = codec.id();
        let own = (&codec as &dyn Any).is::<Deflate>();
        if id < FIRST && !own {
            self.fault.get_or_insert(format!(
                "codec {id} has a number that is Windlass's own; choose one from {FIRST} to 255"
            ));
        } else if !own && self.known.contains_key(&id) {
            self.fault
                .get_or_insert(format!("two codecs have the number {id}; give each key and format its own"));
        } else {
            self.known.insert(id, Arc::new(codec));
            self.writes = if writes { Some(id) } else { self.writes };
        }
    }

    /// Whether they were set up well.
    pub fn check(&self) -> Result<(), Error> {
        self.fault.clone().map_or(Ok(()), |fault| Err(Error::Setup(fault)))
    }

    /// Whether anything but plain JSON may be written.
    fn encodes(&self) -> bool {
        self.writes.is_some() || self.fault.is_some()
    }

    /// A job with its input encoded. Its digest stays that of the plain input.
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

    /// Keeps everything backwards.
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
    fn numbers_that_clash_are_told_of_at_every_use() {
        for (ids, said) in [
            (&[0][..], "codec 0 has a number that is Windlass's own; choose one from 10"),
            (&[1], "codec 1 has a number"),
            (&[10, 10], "two codecs have the number 10"),
        ] {
            let mut codecs = Codecs::default();
            ids.iter().for_each(|id| codecs.add(Backwards(*id), true));
            let error = codecs.encode(b"1".to_vec()).expect_err("a fault").to_string();
            assert!(error.contains(said), "{error}");
            assert!(codecs.check().is_err() && codecs.decode(&Payload { codec: 10, bytes: vec![] }).is_err());
        }
        let mut codecs = Codecs::default();
        codecs.add(Deflate { over: 1 }, true);
        codecs.add(Deflate { over: 2 }, true);
        assert_eq!(codecs.check(), Ok(()), "its own may be set again");
    }
}
