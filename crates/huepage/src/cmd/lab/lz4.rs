//! Unpacks kernels of Debian 12, which are packed by LZ4 in its legacy form: blocks, each with its length
//! before it, of literals and of copies of what came before.

/// The first bytes of a legacy stream.
pub const MAGIC: [u8; 4] = [0x02, 0x21, 0x4c, 0x18];

/// Unpacks a stream behind its magic; what follows the last whole block is left. None where a block is damaged.
pub fn unpack(mut packed: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while let Some((length, rest)) = packed.split_first_chunk::<4>() {
        let Some(block) = rest.get(..u32::from_le_bytes(*length) as usize) else { break };
        unpack_block(block, &mut out)?;
        packed = &rest[block.len()..];
    }
    Some(out)
}

fn unpack_block(mut block: &[u8], out: &mut Vec<u8>) -> Option<()> {
    while let Some((&token, rest)) = block.split_first() {
        block = rest;
        let literals = length(usize::from(token >> 4), &mut block)?;
        out.extend(block.get(..literals)?);
        block = &block[literals..];
        // The last sequence has literals only.
        let Some((distance, rest)) = block.split_first_chunk::<2>() else { break };
        block = rest;
        let copied = length(usize::from(token & 15), &mut block)? + 4;
        let from = out.len().checked_sub(usize::from(u16::from_le_bytes(*distance)))?;
        // What is copied may be what is being written.
        for at in from..from + copied {
            out.push(*out.get(at)?);
        }
    }
    Some(())
}

/// A length of four bits; 15 goes on in bytes until one is below 255.
fn length(first: usize, block: &mut &[u8]) -> Option<usize> {
    let mut sum = first;
    let mut goes_on = first == 15;
    while goes_on {
        let (&more, rest) = block.split_first()?;
        *block = rest;
        sum += usize::from(more);
        goes_on = more == 255;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three literals, 20 bytes that repeat them, one literal; and two literals in a block of their own.
    const PACKED: &[u8] =
        &[9, 0, 0, 0, 0x3f, b'a', b'b', b'c', 3, 0, 1, 0x10, b'x', 3, 0, 0, 0, 0x20, b'y', b'z'];

    #[test]
    fn literals_and_copies_are_unpacked() {
        // The length of all follows, as in kernels.
        let mut packed = PACKED.to_vec();
        packed.extend([25, 0, 0, 0]);
        let text = String::from_utf8(unpack(&packed).unwrap()).unwrap();
        assert_eq!(text, "abcabcabcabcabcabcabcabxyz");
    }

    #[test]
    fn damage_is_no_crash() {
        assert_eq!(unpack(&[2, 0, 0, 0, 0xf0, 0xff]), None);
        assert_eq!(unpack(&[4, 0, 0, 0, 0x10, b'a', 9, 0]), None);
        assert_eq!(unpack(&[9, 0, 0]), Some(Vec::new()));
    }
}
