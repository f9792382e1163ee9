//! As much of protobuf's encoding as the messages of NRI need: fields one by one, in place, and messages to write.
//! What a field means is not known here. Reading takes no memory, whatever the bytes say.

/// Bytes that are no message, or of another kind than its definition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a damaged message")]
pub struct DamagedMessage;

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireValue<'a> {
    /// An integer, a boolean or an enumeration.
    Number(u64),
    /// Text, bytes or another message.
    Bytes(&'a [u8]),
    /// A number of a fixed length, which no message here has.
    Fixed,
}

impl<'a> WireValue<'a> {
    /// The bytes of a message.
    ///
    /// # Errors
    /// If it is a number.
    pub const fn bytes(self) -> Result<&'a [u8], DamagedMessage> {
        match self {
            WireValue::Bytes(bytes) => Ok(bytes),
            _ => Err(DamagedMessage),
        }
    }

    /// Text.
    ///
    /// # Errors
    /// If it is a number, or not UTF-8.
    pub fn text(self) -> Result<&'a str, DamagedMessage> {
        std::str::from_utf8(self.bytes()?).map_err(|_| DamagedMessage)
    }

    /// A number.
    ///
    /// # Errors
    /// If it is something else.
    pub const fn number(self) -> Result<u64, DamagedMessage> {
        match self {
            WireValue::Number(number) => Ok(number),
            _ => Err(DamagedMessage),
        }
    }
}

/// The fields of a message with their numbers, in their order; the last one is an error if the rest is damaged.
#[derive(Clone, Copy, Debug)]
pub struct WireFields<'a>(&'a [u8]);

impl<'a> WireFields<'a> {
    /// Of the bytes of a message.
    pub const fn of(bytes: &'a [u8]) -> WireFields<'a> {
        WireFields(bytes)
    }

    fn field(&mut self) -> Result<(u64, WireValue<'a>), DamagedMessage> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => WireValue::Number(self.varint()?),
            1 => self.skip(8)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| DamagedMessage)?;
                WireValue::Bytes(self.part(length)?)
            }
            5 => self.skip(4)?,
            _ => return Err(DamagedMessage),
        };
        // The length of a key is that of 32 bits, and no field has the number 0.
        (8..1 << 32).contains(&key).then_some((key >> 3, value)).ok_or(DamagedMessage)
    }

    fn varint(&mut self) -> Result<u64, DamagedMessage> {
        let mut number = 0;
        for place in 0..10 {
            let byte = u64::from(self.part(1)?[0]);
            number |= (byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(DamagedMessage)
    }

    fn skip(&mut self, length: usize) -> Result<WireValue<'a>, DamagedMessage> {
        self.part(length).map(|_| WireValue::Fixed)
    }

    fn part(&mut self, length: usize) -> Result<&'a [u8], DamagedMessage> {
        let (part, rest) = self.0.split_at_checked(length).ok_or(DamagedMessage)?;
        self.0 = rest;
        Ok(part)
    }
}

impl<'a> Iterator for WireFields<'a> {
    type Item = Result<(u64, WireValue<'a>), DamagedMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// A message to write.
#[derive(Clone, Debug, Default)]
pub struct WireMessage(Vec<u8>);

impl WireMessage {
    /// Adds a number.
    pub fn number(mut self, field: u64, number: u64) -> WireMessage {
        self.varint(field << 3);
        self.varint(number);
        self
    }

    /// Adds text, bytes or another message.
    pub fn bytes(mut self, field: u64, bytes: impl AsRef<[u8]>) -> WireMessage {
        let bytes = bytes.as_ref();
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Its bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }
}

impl AsRef<[u8]> for WireMessage {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u64, WireValue<'_>)>, DamagedMessage> {
        WireFields::of(bytes).collect()
    }

    /// The examples of protobuf's own description of the encoding.
    #[test]
    fn the_published_examples_are_read_and_written() {
        assert_eq!(all(b"\x08\x96\x01"), Ok(vec![(1, WireValue::Number(150))]));
        assert_eq!(all(b"\x12\x07testing"), Ok(vec![(2, WireValue::Bytes(b"testing"))]));
        let nested = WireMessage::default().bytes(3, WireMessage::default().number(1, 150));
        assert_eq!(nested.into_bytes(), b"\x1a\x03\x08\x96\x01");
        let fixed = b"\x09\0\0\0\0\0\0\0\0\x15\0\0\0\0";
        assert_eq!(all(fixed), Ok(vec![(1, WireValue::Fixed), (2, WireValue::Fixed)]));
    }

    #[test]
    fn damaged_bytes_are_errors_once() {
        let cases: [&[u8]; 7] = [
            b"\x08",                                             // no number
            b"\x12\x05test",                                     // a byte is missing
            b"\x00\x01",                                         // the field 0
            b"\x0b\x0c",                                         // a group
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", // eleven bytes
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",     // a length of 2^64 - 1
            b"\x88\x80\x80\x80\x80\x01\x01",                     // the field 2^32
        ];
        for bytes in cases {
            assert_eq!(all(bytes), Err(DamagedMessage), "{}", bytes.escape_ascii());
            assert_eq!(WireFields::of(bytes).filter(Result::is_err).count(), 1);
        }
        assert_eq!(WireValue::Bytes(b"\xff").text(), Err(DamagedMessage));
        assert_eq!(WireValue::Number(1).text(), Err(DamagedMessage));
        assert_eq!(WireValue::Fixed.number(), Err(DamagedMessage));
    }

    /// Numbers of every length, and messages cut anywhere.
    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_no_more_than_that() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2000 {
            let number = random.u64(..) >> random.u32(..64);
            let (one, other) = (random.u64(1..1 << 29), random.u64(1..1 << 29));
            let bytes: Vec<u8> = (0..random.usize(..300)).map(|_| random.u8(..)).collect();
            let whole = WireMessage::default().number(one, number).bytes(other, &bytes);
            let whole = whole.into_bytes();
            let fields = vec![(one, WireValue::Number(number)), (other, WireValue::Bytes(&bytes))];
            assert_eq!(all(&whole), Ok(fields.clone()));
            let cut = all(&whole[..random.usize(..whole.len())]);
            assert!(cut.is_err() || fields.starts_with(&cut.unwrap()));
        }
    }
}
