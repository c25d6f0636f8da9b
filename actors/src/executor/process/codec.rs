//! The codec between an executor and its child process: the only place that knows how a frame looks.
//!
//! A frame is a version byte, the length of what follows (four bytes, little-endian) and a bincode payload.
//! Both ends are the same program, so a version that differs is an error, never a negotiation. Nothing is
//! allocated on the word of a length alone.

use std::io::{self, ErrorKind, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Version of the frames.
pub(super) const VERSION: u8 = 3;
/// Bytes of a payload at most: a step whose prompts fill a large context, or the log-probabilities of a whole
/// vocabulary for the positions that one step may compute.
pub(super) const PAYLOAD_MAX: u32 = 1 << 30;

const HEADER: usize = 5;
/// Bytes asked for at once.
const CHUNK: usize = 64 << 10;

/// A frame cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The other end is another program.
    #[error(
        "the other process speaks version {got} of the frames, this one {VERSION}; start both from one binary"
    )]
    Version {
        /// Its version.
        got: u8,
    },
    /// A frame is larger than any may be.
    #[error("a frame of {bytes} bytes is longer than the {PAYLOAD_MAX} that are allowed")]
    TooLong {
        /// Its size.
        bytes: u64,
    },
    /// A value has no such form.
    #[error("a frame cannot be encoded: {0}")]
    Encode(#[from] bincode::error::EncodeError),
    /// A payload makes no sense.
    #[error("a frame makes no sense: {0}")]
    Decode(#[from] bincode::error::DecodeError),
    /// A payload is longer than the value in it.
    #[error("a frame has {bytes} bytes too many")]
    Trailing {
        /// So many.
        bytes: usize,
    },
    /// The other end closed the socket, between two frames.
    #[error("the other process closed the socket")]
    Ended,
    /// The other end closed the socket in the middle of a frame.
    #[error("the other process closed the socket in the middle of a frame")]
    Truncated,
    /// The socket.
    #[error("the socket to the other process: {0}")]
    Socket(#[from] io::Error),
}

/// Writes one frame; `buffer` is scratch memory.
pub(super) fn write<T: Serialize>(
    frame: &T,
    socket: &mut impl Write,
    buffer: &mut Vec<u8>,
) -> Result<(), CodecError> {
    buffer.clear();
    buffer.extend_from_slice(&[VERSION, 0, 0, 0, 0]);
    bincode::serde::encode_into_std_write(frame, buffer, bincode::config::standard())?;
    let bytes = (buffer.len() - HEADER) as u64;
    let length = u32::try_from(bytes).ok().filter(|length| *length <= PAYLOAD_MAX);
    let length = length.ok_or(CodecError::TooLong { bytes })?;
    for (place, byte) in buffer.iter_mut().skip(1).zip(length.to_le_bytes()) {
        *place = byte;
    }
    socket.write_all(buffer)?;
    Ok(())
}

/// Reads frames. A read that times out loses nothing.
pub(super) struct Frames<R> {
    socket: R,
    buffer: Vec<u8>,
    chunk: Box<[u8]>,
}

impl<R: Read> Frames<R> {
    pub(super) fn new(socket: R) -> Self {
        Self { socket, buffer: Vec::new(), chunk: vec![0; CHUNK].into_boxed_slice() }
    }

    /// The next frame; `None` when the socket's own time limit has passed without one.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, CodecError> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(Some(frame));
            }
            match self.socket.read(&mut self.chunk) {
                Ok(0) if self.buffer.is_empty() => return Err(CodecError::Ended),
                Ok(0) => return Err(CodecError::Truncated),
                Ok(bytes) => self.buffer.extend(self.chunk.iter().take(bytes)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A frame that is there in full.
    fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, CodecError> {
        match self.buffer.first() {
            Some(&got) if got != VERSION => return Err(CodecError::Version { got }),
            _ => {}
        }
        let Some((header, rest)) = self.buffer.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [_, a, b, c, d] = *header;
        let length = u32::from_le_bytes([a, b, c, d]);
        if length > PAYLOAD_MAX {
            return Err(CodecError::TooLong { bytes: u64::from(length) });
        }
        let Some(payload) = rest.get(..length as usize) else { return Ok(None) };
        let config = bincode::config::standard().with_limit::<{ PAYLOAD_MAX as usize }>();
        let (frame, used) = bincode::serde::decode_from_slice(payload, config)?;
        if used != payload.len() {
            return Err(CodecError::Trailing { bytes: payload.len() - used });
        }
        self.buffer.drain(..HEADER + length as usize);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Frame = (u64, String, Vec<f32>);

    fn frame() -> Frame {
        (7, "step".to_owned(), vec![0.5, f32::NEG_INFINITY])
    }

    fn encoded() -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&frame(), &mut bytes, &mut Vec::new()).unwrap();
        bytes
    }

    /// A socket that gives a byte at a time, with a time-out before each.
    struct Slow(std::vec::IntoIter<u8>, bool);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(ErrorKind::WouldBlock.into());
            }
            Ok(self.0.next().map_or(0, |byte| {
                buffer[0] = byte;
                1
            }))
        }
    }

    #[test]
    fn frames_arrive_whole_however_they_are_cut() {
        let bytes = [encoded(), encoded()].concat();
        let mut frames = Frames::new(Slow(bytes.into_iter(), false));
        let mut seen = 0;
        let ended = loop {
            match frames.next::<Frame>() {
                Ok(Some(got)) => {
                    assert_eq!(got, frame());
                    seen += 1;
                }
                Ok(None) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(seen, 2);
        assert!(matches!(ended, CodecError::Ended), "{ended}");
    }

    #[test]
    fn what_is_no_frame_is_an_error_that_says_why() {
        let read = |bytes: &[u8]| Frames::new(bytes).next::<Frame>().unwrap_err();
        let good = encoded();
        let mut bytes = good.clone();
        bytes[0] = 9;
        assert!(matches!(read(&bytes), CodecError::Version { got: 9 }));
        bytes = good.clone();
        bytes[1..5].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(read(&bytes), CodecError::TooLong { .. }));
        assert!(matches!(read(&good[..good.len() - 1]), CodecError::Truncated));
        bytes = good.clone();
        bytes.push(0);
        let longer = (good.len() - HEADER + 1) as u32;
        bytes[1..5].copy_from_slice(&longer.to_le_bytes());
        assert!(matches!(read(&bytes), CodecError::Trailing { bytes: 1 }));
        bytes = good.clone();
        bytes.truncate(HEADER + 3);
        bytes[1..5].copy_from_slice(&3_u32.to_le_bytes());
        assert!(matches!(read(&bytes), CodecError::Decode(_)));
        assert!(matches!(read(&[]), CodecError::Ended));
    }
}
