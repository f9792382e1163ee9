//! A trace of one block around a given payload, with the right lengths and checksums, and
//! without an index.

/// The trace, of a version of the format.
pub fn trace(version: u32, records: u32, payload: &[u8]) -> Vec<u8> {
    let header = br#"{"program":"p"}"#;
    let (version, length) = (version.to_le_bytes(), words(header.len()));
    let sum = checksum(&[&version, &length, header]);
    let size = words(payload.len());
    // The tag, the length, the number of records; then the first record and instructions.
    let front = [*b"BLOK", size, records.to_le_bytes()].concat();
    let place = [0; 16];
    let own = checksum(&[&front, &place, payload]);
    [b"huetrace", &version[..], &length, &sum, header, &front, &own, &place, payload].concat()
}

fn words(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

fn checksum(parts: &[&[u8]]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().to_le_bytes()
}
