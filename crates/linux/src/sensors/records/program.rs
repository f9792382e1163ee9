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

/// The program among the words that the emulator is started with, by the recorder and by the plugin: the emulator,
/// options with a word each, the program, its arguments.
pub fn among<'w>(mut words: impl Iterator<Item = &'w [u8]>) -> Option<&'w [u8]> {
    words.next()?;
    loop {
        match words.next()? {
            b"-plugin" | b"-0" | b"-E" => _ = words.next()?,
            program => return Some(program),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_first_word_that_is_no_option() {
        for (words, program) in [
            (
                &["qemu", "-plugin", "p.so,ring=/r", "-0", "sh", "/bin/sh", "-c", "x"][..],
                Some("/bin/sh"),
            ),
            // Its name may be empty or look like an option; variables of its loader come between.
            (
                &["qemu", "-plugin", "-0", "-0", "", "-E", "LD_PRELOAD=-0", "./-E", "-0"],
                Some("./-E"),
            ),
            (&["qemu", "/bin/true"], Some("/bin/true")),
            (&["qemu", "-plugin", "p.so", "-0", "x"], None),
            (&["qemu", "-0"], None),
            (&[], None),
        ] {
            let found = among(words.iter().map(|word| word.as_bytes()));
            assert_eq!(found, program.map(str::as_bytes), "{words:?}");
        }
    }
}
