//! The kernel to boot: found by name or file, taken out of a package if it is in one, and unpacked, since
//! an emulated processor is slow at that.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use huepage_linux::kernel::machine::KernelRelease;

use crate::exit::{CmdError, ExitCode, bad_file};

/// Where installed kernels lie, and packages that were fetched for the lab alone.
const BOOT: &str = "/boot";
const FETCHED: &str = "/var/cache/huepage-lab";
const ELF: &[u8] = b"\x7fELF";
const PACKAGE: &[u8] = b"!<arch>\n";
const LZ4: &[u8] = &[0x02, 0x21, 0x4c, 0x18];
/// The most that a block of LZ4's legacy form holds.
const LZ4_BLOCK: usize = 8 << 20;

/// The file that was meant: a path, or the newest kernel that lies where they do, with the name in its own.
pub fn find(wanted: Option<&Path>) -> Option<PathBuf> {
    if let Some(path) = wanted.filter(|path| path.is_file()) {
        return Some(path.to_owned());
    }
    let part = wanted.map_or("", |name| name.to_str().unwrap_or("\0"));
    let directories = [BOOT, FETCHED].into_iter().filter_map(|path| fs::read_dir(path).ok());
    let paths = directories.flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let named = |path: &PathBuf| {
        let name = name(path);
        ["vmlinuz-", "linux-image-"].iter().any(|kind| name.starts_with(kind))
            && name.contains(part)
    };
    paths.filter(named).max_by_key(|path| rank(&name(path)))
}

/// Kernels with PREEMPT_RT are for who asks for one; of the others newer ones come first.
fn rank(name: &str) -> (bool, Vec<u32>) {
    let digits = |rest: &str| rest.chars().all(|c| c.is_ascii_digit());
    let mut parts = name.split(|c: char| !c.is_ascii_alphanumeric());
    let real_time = parts.any(|part| part.strip_prefix("rt").is_some_and(digits));
    (!real_time, version(name))
}

/// The numbers in a name, which order kernels by age.
fn version(name: &str) -> Vec<u32> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// A kernel to boot.
pub struct KernelImage {
    /// Unpacked, as an ELF image.
    pub elf: Vec<u8>,
    /// As it was before, with the part that unpacks it, if it was packed.
    pub packed: Option<Vec<u8>>,
    /// Its release, if the file said it.
    pub release: Option<KernelRelease>,
}

/// The kernel in a file.
///
/// # Errors
/// When it cannot be read, or is no kernel of 64-bit x86.
pub fn unpack(path: &Path) -> Result<KernelImage, CmdError> {
    let content =
        fs::read(path).map_err(|e| bad_file(path, format!("{e}; give another --kernel")))?;
    if content.starts_with(ELF) {
        return Ok(KernelImage { elf: content, packed: None, release: None });
    }
    let image = if content.starts_with(PACKAGE) { from_package(path)? } else { content };
    let what = "no kernel of 64-bit x86 in it; give a vmlinuz, a vmlinux or a package with one";
    let elf = payload(&image).and_then(decompress).ok_or_else(|| bad_file(path, what))?;
    Ok(KernelImage { elf, release: release(&image), packed: Some(image) })
}

/// The kernel of a Debian package.
fn from_package(path: &Path) -> Result<Vec<u8>, CmdError> {
    let directory = tempfile::tempdir().map_err(CmdError::internal)?;
    let unpacked =
        Command::new("dpkg-deb").arg("--extract").arg(path).arg(directory.path()).status();
    let what = "dpkg-deb cannot unpack it; give a vmlinuz";
    if !unpacked.is_ok_and(|status| status.success()) {
        return Err(bad_file(path, what));
    }
    let entries = fs::read_dir(directory.path().join("boot")).map_err(|_| {
        bad_file(
            path,
            "no kernel in this package; take linux-image-…, not the one without a version",
        )
    })?;
    let mut names = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let found = names.find(|path| path.to_string_lossy().contains("vmlinuz-"));
    found
        .and_then(|kernel| fs::read(kernel).ok())
        .ok_or_else(|| bad_file(path, "no kernel in this package; give another"))
}

/// The packed kernel inside a bzImage, by its header (Linux, Documentation/arch/x86/boot.rst, from
/// protocol 2.08 on).
fn payload(image: &[u8]) -> Option<&[u8]> {
    let word =
        |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let sectors = usize::from(*image.get(0x1f1)?);
    let start = (sectors.max(1) + 1) * 512 + word(0x248)?;
    image.get(start..start.checked_add(word(0x24c)?)?)
}

/// Unpacks what Debian's and others' kernels are packed by.
fn decompress(packed: &[u8]) -> Option<Vec<u8>> {
    let mut kernel = Vec::new();
    // What follows the packed data, its length, is no error.
    let _ = match packed {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => zstd::Decoder::new(packed).ok()?.read_to_end(&mut kernel),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => {
            liblzma::read::XzDecoder::new(packed).read_to_end(&mut kernel)
        }
        _ if packed.starts_with(LZ4) => return elf(unpack_lz4(&packed[LZ4.len()..])?),
        [0x1f, 0x8b, ..] => flate2::read::GzDecoder::new(packed).read_to_end(&mut kernel),
        _ => return None,
    };
    elf(kernel)
}

/// Unpacks what is behind the magic of LZ4's legacy form: blocks, each with its length before it. What follows
/// the last whole one is left.
fn unpack_lz4(mut packed: &[u8]) -> Option<Vec<u8>> {
    let mut kernel = Vec::new();
    while let Some((length, rest)) = packed.split_first_chunk::<4>() {
        let Some(block) = rest.get(..u32::from_le_bytes(*length) as usize) else { break };
        kernel.extend(lz4_flex::block::decompress(block, LZ4_BLOCK).ok()?);
        packed = &rest[block.len()..];
    }
    Some(kernel)
}

fn elf(kernel: Vec<u8>) -> Option<Vec<u8>> {
    kernel.starts_with(ELF).then_some(kernel)
}

/// The release that a bzImage says it is (the same document, `kernel_version`).
fn release(image: &[u8]) -> Option<KernelRelease> {
    let at = u16::from_le_bytes(image.get(0x20e..0x210)?.try_into().ok()?);
    let text = image.get(0x200 + usize::from(at)..)?.split(|byte| b" \0".contains(byte)).next()?;
    Some(KernelRelease::parse(std::str::from_utf8(text).ok()?))
}

/// No kernel that was meant.
pub fn none(wanted: &Path) -> CmdError {
    let what = format!("no file and no kernel in {BOOT} is called so; see `ls {BOOT}`");
    CmdError::new(ExitCode::BadFile, format!("{}: {what}", wanted.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A bzImage around a payload.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 0x400];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        image.extend([7; 16]);
        image.extend(payload);
        image.extend([9; 100]);
        image
    }

    #[test]
    fn kernels_are_unpacked_whatever_packed_them() {
        let kernel = [ELF, &[5; 5000]].concat();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&kernel).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(&kernel).unwrap();
        let zstd = zstd::encode_all(&*kernel, 1).unwrap();
        let mut lz4 = LZ4.to_vec();
        for part in kernel.chunks(3000) {
            let block = lz4_flex::block::compress(part);
            lz4.extend(u32::try_from(block.len()).unwrap().to_le_bytes());
            lz4.extend(block);
        }
        for packed in [gzip.finish().unwrap(), xz.finish().unwrap(), zstd, lz4] {
            // The kernel's build adds the length.
            let file = image(&[&*packed, &[0x88, 0x13, 0, 0]].concat());
            assert_eq!(payload(&file).and_then(decompress).as_ref(), Some(&kernel));
        }
        assert_eq!(payload(&image(b"what")).and_then(decompress), None);
        let damaged = [LZ4, &[2, 0, 0, 0, 0xf0, 0xff]].concat();
        assert_eq!(payload(&image(&damaged)).and_then(decompress), None);
        assert_eq!(payload(&[0; 2000]), None);
    }

    #[test]
    fn a_kernel_tells_its_release() {
        let mut image = image(b"");
        image[0x20e..0x210].copy_from_slice(&0x150_u16.to_le_bytes());
        image[0x350..0x36b].copy_from_slice(b"6.1.0-56-cloud-amd64 (deb)\0");
        let found = release(&image).unwrap();
        assert_eq!((found.text.as_str(), found.suffices()), ("6.1.0-56-cloud-amd64", false));
        assert!(release(&[0; 0x20f]).is_none());
    }

    #[test]
    fn the_newest_kernel_is_that_of_the_highest_numbers() {
        let mut names = [
            "vmlinuz-6.12.9-cloud-amd64",
            "vmlinuz-6.1.0-50-amd64",
            "vmlinuz-6.12.30-amd64",
            "vmlinuz-6.12.31-rt-amd64",
        ];
        names.sort_by_key(|name| rank(name));
        assert_eq!(names[2..], ["vmlinuz-6.12.9-cloud-amd64", "vmlinuz-6.12.30-amd64"]);
        let plain = rank("vmlinuz-6.1.0-art-amd64");
        for name in ["vmlinuz-6.12.31-rt30", "vmlinuz-6.6.0-rt30-amd64", "vmlinuz-6.12.31-rt"] {
            assert!(rank(name) < plain, "{name}");
        }
    }
}
