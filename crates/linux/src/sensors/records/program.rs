//! What the first bytes of a program say of how it is executed. The plugin compiles this
//! file too, so that a program's children are judged as the program was.

/// First bytes of a program that are looked at, as in the kernel.
pub const HEAD: usize = 256;
/// Scripts whose interpreters are scripts, as in the kernel.
pub const DEPTH: usize = 5;

/// Whether this is a little-endian 64-bit x86 program, which the emulator runs.
pub fn is_emulated(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF\x02\x01") && head.get(18..20) == Some(&[62, 0])
}

/// Whether an interpreter runs it.
pub fn is_script(head: &[u8]) -> bool {
    head.starts_with(b"#!")
}

/// The interpreter that the first line of a script names, and its one argument.
pub fn interpreter(head: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(line.len());
    let (program, argument) = line.split_at(end);
    let argument = Some(argument.trim_ascii()).filter(|argument| !argument.is_empty());
    if program.is_empty() { None } else { Some((program, argument)) }
}
