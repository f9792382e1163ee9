//! The framing of NRI: several connections share one socket (a number and a length before each part), and each
//! carries the frames of ttrpc (a length, the number of a call and a kind before each message). Bytes in, frames out,
//! and the other way round; what is in a frame is not known here.

/// Bytes before a part of the socket's stream: connection and length, both in 32 bits, the highest byte first.
const PART_HEAD: usize = 8;
/// Bytes before a message: length and call in 32 bits, the kind, and flags.
const FRAME_HEAD: usize = 10;
/// Longest message in bytes, by the definition of ttrpc.
const MOST: usize = 4 << 20;
/// Longest part that is written: what the other side's reader takes at once, wherever in a frame it is.
const PART: usize = 4096;

/// One of the connections of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum NriLane {
    /// Calls of the runtime to the plugin, and the answers.
    Plugin = 1,
    /// Calls of the plugin to the runtime.
    Runtime = 2,
}

impl NriLane {
    const ALL: [NriLane; 2] = [NriLane::Plugin, NriLane::Runtime];
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A call.
    Request,
    /// What came of one.
    Response,
    /// Data of a stream, which NRI does not have, or what is not known yet.
    Other,
}

/// A message of one of the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NriFrame {
    /// The connection that it came by, or goes by.
    pub lane: NriLane,
    /// The call that it belongs to: its response has the same number.
    pub call: u32,
    /// What it is.
    pub kind: FrameKind,
    /// The message.
    pub data: Vec<u8>,
}

/// Why bytes are no frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// A part of the stream that is longer than what it could carry.
    #[error("a part of {0} bytes, which is too long")]
    Part(usize),
    /// A message that is longer than allowed.
    #[error("a message of {0} bytes, which is too long")]
    Message(usize),
}

/// Puts frames together from bytes as they come; has at most what has come of one frame of each connection.
#[derive(Debug, Default)]
pub struct FrameReader {
    head: Vec<u8>,
    /// The connection of the part that is being read, if it is one of ours, and the bytes that are still to come.
    part: (Option<NriLane>, usize),
    begun: [Vec<u8>; 2],
}

impl FrameReader {
    /// Takes bytes; adds the frames that are whole with them, in their order.
    ///
    /// # Errors
    /// A length that is not allowed, behind the frames that were added; nothing can be read after it.
    pub fn take(
        &mut self,
        mut bytes: &[u8],
        frames: &mut Vec<NriFrame>,
    ) -> Result<(), FramingError> {
        while !bytes.is_empty() {
            if self.part.1 == 0 {
                let (head, rest) = bytes.split_at(bytes.len().min(PART_HEAD - self.head.len()));
                self.head.extend_from_slice(head);
                bytes = rest;
                self.begin_part()?;
                continue;
            }
            let (data, rest) = bytes.split_at(bytes.len().min(self.part.1));
            self.part.1 -= data.len();
            bytes = rest;
            if let Some(lane) = self.part.0 {
                let begun = &mut self.begun[lane as usize - 1];
                begun.extend_from_slice(data);
                whole(lane, begun, frames)?;
            }
        }
        Ok(())
    }

    /// Reads the head of a part, once all of it is there.
    fn begin_part(&mut self) -> Result<(), FramingError> {
        if self.head.len() < PART_HEAD {
            return Ok(());
        }
        let (number, length) = (word(&self.head), word(&self.head[4..]) as usize);
        self.head.clear();
        if length > MOST + FRAME_HEAD {
            return Err(FramingError::Part(length));
        }
        self.part = (NriLane::ALL.into_iter().find(|lane| *lane as u32 == number), length);
        Ok(())
    }
}

/// Takes the whole frames from the front of what has come of a connection.
fn whole(
    lane: NriLane,
    begun: &mut Vec<u8>,
    frames: &mut Vec<NriFrame>,
) -> Result<(), FramingError> {
    let mut at = 0;
    while let Some(head) = begun.get(at..at + FRAME_HEAD) {
        let length = word(head) as usize;
        if length > MOST {
            return Err(FramingError::Message(length));
        }
        let (call, kind) = (word(&head[4..]), kind(head[8]));
        let Some(data) = begun.get(at + FRAME_HEAD..at + FRAME_HEAD + length) else { break };
        frames.push(NriFrame { lane, call, kind, data: data.to_vec() });
        at += FRAME_HEAD + length;
    }
    begun.drain(..at);
    Ok(())
}

const fn kind(number: u8) -> FrameKind {
    match number {
        1 => FrameKind::Request,
        2 => FrameKind::Response,
        _ => FrameKind::Other,
    }
}

/// Four bytes, the highest first.
fn word(bytes: &[u8]) -> u32 {
    bytes[..4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

impl NriFrame {
    /// Its bytes on the socket. Ours are far below the longest message.
    pub fn encoded(&self) -> Vec<u8> {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
        let mut frame = [number(self.data.len()), self.call.to_be_bytes()].concat();
        let kind = match self.kind {
            FrameKind::Request => 1,
            FrameKind::Response => 2,
            FrameKind::Other => 3,
        };
        frame.extend([kind, 0]);
        frame.extend_from_slice(&self.data);
        let part =
            |part: &[u8]| [&(self.lane as u32).to_be_bytes(), &number(part.len()), part].concat();
        frame.chunks(PART).flat_map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<NriFrame>, FramingError> {
        let mut frames = Vec::new();
        FrameReader::default().take(bytes, &mut frames).map(|()| frames)
    }

    fn frame(lane: NriLane, call: u32, data: &[u8]) -> NriFrame {
        NriFrame { lane, call, kind: FrameKind::Request, data: data.to_vec() }
    }

    /// As the definitions of the multiplexer and of ttrpc have it, byte by byte.
    #[test]
    fn a_frame_has_the_bytes_of_the_protocol() {
        let bytes = b"\0\0\0\x02\0\0\0\x0d\0\0\0\x03\0\0\0\x01\x01\0abc";
        assert_eq!(frame(NriLane::Runtime, 1, b"abc").encoded(), bytes);
    }

    /// Frames of both connections, of all lengths, in parts that are cut anywhere.
    #[test]
    fn frames_are_found_however_the_bytes_come() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let lane = |lane: bool| if lane { NriLane::Plugin } else { NriLane::Runtime };
            let sent: Vec<NriFrame> = (0..random.usize(1..6))
                .map(|_| {
                    let data = vec![random.u8(..); random.usize(..10_000)];
                    frame(lane(random.bool()), random.u32(..), &data)
                })
                .collect();
            let bytes: Vec<u8> = sent.iter().flat_map(NriFrame::encoded).collect();
            let (mut reader, mut found, mut at) = (FrameReader::default(), Vec::new(), 0);
            while at < bytes.len() {
                let end = bytes.len().min(at + random.usize(1..5000));
                reader.take(&bytes[at..end], &mut found).unwrap();
                at = end;
            }
            assert_eq!(found, sent);
        }
    }

    #[test]
    fn a_frame_of_several_parts_may_have_the_others_between() {
        let long = frame(NriLane::Plugin, 1, &[7; 5000]).encoded();
        let other = frame(NriLane::Runtime, 3, b"x");
        let cut = PART_HEAD + PART;
        let bytes =
            [&long[..cut], &other.encoded(), b"\0\0\0\x09\0\0\0\x02zz", &long[cut..]].concat();
        let found = read(&bytes).unwrap();
        assert_eq!(found, [other, frame(NriLane::Plugin, 1, &[7; 5000])]);
    }

    #[test]
    fn what_is_too_long_is_refused_by_its_head() {
        let part = read(b"\0\0\0\x01\xff\xff\xff\xff");
        assert_eq!(part, Err(FramingError::Part(u32::MAX as usize)));
        let message = read(b"\0\0\0\x01\0\0\0\x0a\0\x40\0\x01\0\0\0\x01\x01\0");
        assert_eq!(message, Err(FramingError::Message(MOST + 1)));
        assert!(message.unwrap_err().to_string().contains("4194305 bytes"));
    }
}
