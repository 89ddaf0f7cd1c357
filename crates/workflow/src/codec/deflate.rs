//! Compression of large payloads.

use miniz_oxide::{
    deflate::compress_to_vec_zlib, inflate::TINFLStatus, inflate::decompress_to_vec_zlib_with_limit,
};

use super::Codec;

/// The level, of 10: the usual compromise between time and size.
const LEVEL: u8 = 6;

/// Compresses payloads of more than `over` bytes, if that makes them smaller. Its number is 1, and every engine can read its
/// payloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deflate {
    /// Payloads up to this many bytes stay plain: they gain little, and people can read them.
    pub over: usize,
}

impl Deflate {
    /// Its number.
    pub const ID: u8 = 1;
    /// The longest payload that it encodes or decodes, in bytes. A row can unpack to a thousand times its size, and must not
    /// use up the worker's memory.
    pub const MOST: usize = 64 << 20;
}

impl Default for Deflate {
    /// Compresses payloads over 1 KiB: compressing less does not make a row noticeably smaller.
    fn default() -> Deflate {
        Deflate { over: 1 << 10 }
    }
}

impl Codec for Deflate {
    fn id(&self) -> u8 {
        Deflate::ID
    }

    fn encode(&self, plain: &[u8]) -> Result<Option<Vec<u8>>, String> {
        if plain.len() <= self.over {
            return Ok(None);
        }
        if plain.len() > Deflate::MOST {
            return Err(format!("it is {} bytes long, more than the {} allowed", plain.len(), Deflate::MOST));
        }
        Ok(Some(compress_to_vec_zlib(plain, LEVEL)).filter(|packed| packed.len() < plain.len()))
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        unpack(bytes, Deflate::MOST)
    }
}

/// Decompresses to at most `limit` bytes.
fn unpack(bytes: &[u8], limit: usize) -> Result<Vec<u8>, String> {
    decompress_to_vec_zlib_with_limit(bytes, limit).map_err(|error| match error.status {
        TINFLStatus::HasMoreOutput => format!("it is more than the {limit} bytes allowed when unpacked"),
        _ => "it is damaged".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_payloads_are_compressed_and_small_or_dense_ones_stay_plain() {
        let codec = Deflate { over: 100 };
        let text = "a line of a log that comes again and again\n".repeat(1_000).into_bytes();
        let packed = codec.encode(&text).expect("packed").expect("smaller");
        assert!(packed.len() * 50 < text.len(), "{}", packed.len());
        assert_eq!(codec.decode(&packed), Ok(text));
        assert_eq!(codec.encode(&[b'a'; 100]), Ok(None));
        let mut state = 1u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let dense: Vec<u8> = (0..10_000).map(|_| noise()).collect();
        assert_eq!(codec.encode(&dense), Ok(None));
    }

    #[test]
    fn a_payload_that_unpacks_to_too_much_is_refused() {
        let most = 1 << 20;
        let bomb = compress_to_vec_zlib(&vec![0; most + 1], LEVEL);
        assert!(bomb.len() < 2_000, "it would fit into any row");
        let error = unpack(&bomb, most).expect_err("refused");
        assert!(error.contains("more than the 1048576 bytes"), "{error}");
        let fits = compress_to_vec_zlib(&vec![0; most], LEVEL);
        assert_eq!(unpack(&fits, most).map(|plain| plain.len()), Ok(most));
        assert!(
            Deflate::default().encode(&vec![0; Deflate::MOST + 1]).is_err(),
            "it could not be read again"
        );
    }

    #[test]
    fn a_damaged_payload_is_refused() {
        let mut packed = compress_to_vec_zlib(&[7; 5_000], LEVEL);
        let last = packed.len() - 1;
        packed[last] ^= 1;
        assert_eq!(Deflate::default().decode(&packed), Err("it is damaged".to_owned()));
        assert_eq!(Deflate::default().decode(b""), Err("it is damaged".to_owned()));
    }
}
