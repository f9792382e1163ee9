//! The file of one hash: masks in the usual notation, where they come from, and which address
//! bits that covers. `huepage probe hash --output` writes such files, `machines/hashes/` holds
//! published ones, and `--colors-from declared=FILE` reads them. Text in, text out; files are
//! opened elsewhere, and nothing in them is believed because it is there: see [`mod@crate::verify`].

use huepage_color::{CacheGeometry, IndexError, IndexFunction};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a text is no hash file, or one that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum HashFileError {
    /// Not TOML, or not these keys.
    #[error(
        "{what}; a hash file has name, source, address_bits and slice_masks, see docs/hashes.md"
    )]
    Form { what: String },
    /// The masks make no index function.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// Masks beyond the bits that the file itself vouches for.
    #[error(
        "mask {mask:#x} has bits outside {low}-{high}, of which alone the file speaks; correct address_bits or the mask"
    )]
    Outside { mask: u64, low: u32, high: u32 },
    /// Another number of sets or slices than the cache has.
    #[error(
        "{slices} slices of 2^{set_bits} sets are not the {sets} sets of this {level} cache; give the file of its own hash"
    )]
    OtherCache { slices: u32, set_bits: u32, sets: u32, level: String },
}

/// A hash and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HashFile {
    /// Whose hash it is.
    pub name: String,
    /// Who says so, or how it was measured.
    pub source: String,
    /// Lowest and highest address bit that was looked at; of bits outside nothing is known.
    pub address_bits: [u32; 2],
    /// log2 of the line size in bytes.
    #[serde(default = "line_bits")]
    pub line_bits: u32,
    /// log2 of the sets per slice, if the hash is of one cache only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_bits: Option<u32>,
    /// One mask per slice bit, the lowest bit first; empty for a base sequence.
    #[serde(default)]
    pub slice_masks: Vec<Mask>,
    /// Base sequence, if slices are no power of two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub base: Vec<u8>,
    /// Permutation of the base sequence, one mask per bit of its index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permutation: Vec<Mask>,
    /// Parities that the measurement could not see: masks may have these added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ambiguous: Vec<Mask>,
    /// How it was measured here; published hashes have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<HashEvidence>,
}

/// What a measured hash rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HashEvidence {
    /// Observations.
    pub observations: u64,
    /// Share of them, 0 to 1, that the hash contradicts.
    pub wrong: f64,
    /// log10 of the doubt, an upper bound.
    pub log10_doubt: f64,
}

impl HashEvidence {
    /// TOML has numbers that are none, and any share and doubt would be printed as they are.
    fn check(&self) -> Result<(), HashFileError> {
        let form = |what: String| Err(HashFileError::Form { what });
        if !(0.0..=1.0).contains(&self.wrong) {
            return form(format!("measured.wrong {} is no share from 0 to 1", self.wrong));
        }
        if self.log10_doubt.is_nan() || self.log10_doubt > 0.0 {
            let doubt = self.log10_doubt;
            return form(format!("measured.log10_doubt {doubt} is no logarithm of a probability"));
        }
        Ok(())
    }
}

/// A mask as a text, for TOML has no numbers of 64 bits; read from a number as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub struct Mask(pub u64);

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(i64),
    Text(String),
}

impl TryFrom<Written> for Mask {
    type Error = String;

    fn try_from(written: Written) -> Result<Mask, String> {
        match written {
            Written::Number(number) => {
                u64::try_from(number).map(Mask).map_err(|_| format!("{number} is no mask"))
            }
            Written::Text(text) => {
                match *crate::notation::parse(&text).map_err(|e| e.to_string())? {
                    [mask] => Ok(Mask(mask)),
                    _ => Err(format!("`{}` is not one mask", text.escape_debug())),
                }
            }
        }
    }
}

impl From<Mask> for String {
    fn from(mask: Mask) -> String {
        format!("{:#x}", mask.0)
    }
}

const fn line_bits() -> u32 {
    6
}

impl HashFile {
    /// Reads a file's text and checks that it makes sense.
    ///
    /// # Errors
    /// `Form`, `Index`, `Outside`.
    pub fn parse(text: &str) -> Result<HashFile, HashFileError> {
        let form = |what: toml::de::Error| {
            let what = what.message().lines().next().unwrap_or("not TOML").to_owned();
            HashFileError::Form { what }
        };
        let file: HashFile = toml::from_str(text).map_err(form)?;
        file.check()?;
        Ok(file)
    }

    /// The text of the file.
    ///
    /// # Errors
    /// `Form` if a text in it cannot be written as TOML.
    pub fn render(&self) -> Result<String, HashFileError> {
        toml::to_string(self).map_err(|e| HashFileError::Form { what: e.to_string() })
    }

    fn check(&self) -> Result<(), HashFileError> {
        let [low, high] = self.address_bits;
        if low > high || high > 63 {
            let what = format!("address_bits [{low}, {high}] are no range within 0-63");
            return Err(HashFileError::Form { what });
        }
        let covered = u64::MAX >> (63 - high) & u64::MAX << low;
        let mut masks = self.slice_masks.iter().chain(&self.permutation);
        if let Some(&Mask(mask)) = masks.find(|mask| mask.0 & !covered != 0) {
            return Err(HashFileError::Outside { mask, low, high });
        }
        if self.slice_masks.is_empty() == self.base.is_empty() {
            let what = "a hash has either slice_masks or base".to_owned();
            return Err(HashFileError::Form { what });
        }
        if let Some(measured) = &self.measured {
            measured.check()?;
        }
        self.index(self.set_bits.unwrap_or(0)).map(drop)
    }

    /// The masks of a hash of parities; empty for a base sequence.
    pub fn masks(&self) -> Vec<u64> {
        self.slice_masks.iter().map(|mask| mask.0).collect()
    }

    /// The index function of a cache of this hash with 2^`set_bits` sets per slice; the file's
    /// own number counts more.
    ///
    /// # Errors
    /// `Index`.
    pub fn index(&self, set_bits: u32) -> Result<IndexFunction, HashFileError> {
        let set_bits = self.set_bits.unwrap_or(set_bits);
        let permutation = self.permutation.iter().map(|mask| mask.0).collect();
        Ok(if self.base.is_empty() {
            IndexFunction::xor(self.line_bits, set_bits, self.masks())?
        } else {
            IndexFunction::permuted(self.line_bits, set_bits, self.base.clone(), permutation)?
        })
    }

    /// The index function of `cache`, if the hash can be its own.
    ///
    /// # Errors
    /// `OtherCache` if slices, sets or lines do not fit, `Index`.
    pub fn index_of(&self, cache: &CacheGeometry) -> Result<IndexFunction, HashFileError> {
        let slices = self.index(0)?.slices();
        let set_bits = self.set_bits.unwrap_or_else(|| (cache.sets / slices).max(1).ilog2());
        let index = self.index(set_bits)?;
        let lines = cache.line_bytes.is_power_of_two()
            && cache.line_bytes.trailing_zeros() == self.line_bits;
        if lines && u64::from(slices) << set_bits == u64::from(cache.sets) {
            return Ok(index);
        }
        let (sets, level) = (cache.sets, cache.level.to_string());
        Err(HashFileError::OtherCache { slices, set_bits, sets, level })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use huepage_color::{CacheKind, CacheLevel};

    const TEXT: &str = "name = \"x\"\nsource = \"y\"\naddress_bits = [6, 37]\n\
        slice_masks = [0x1b5f575440, \"0x2eb5faa880\"]\n";

    #[test]
    fn numbers_and_texts_are_masks_and_writing_keeps_them() {
        let file = HashFile::parse(TEXT).unwrap();
        assert_eq!(file.masks(), [0x1b5f575440, 0x2eb5faa880]);
        assert_eq!(HashFile::parse(&file.render().unwrap()), Ok(file));
    }

    #[test]
    fn what_is_wrong_is_told_with_what_to_do() {
        let bad = |from: &str, to: &str| {
            HashFile::parse(&TEXT.replace(from, to)).unwrap_err().to_string()
        };
        assert!(bad("[6, 37]", "[6, 36]").contains("correct address_bits"));
        assert!(bad("[6, 37]", "[37, 6]").contains("no range"));
        assert!(bad("0x1b5f575440", "-1").contains("docs/hashes.md"));
        assert!(bad("0x1b5f575440", "\"0x2eb5faa880\"").contains("dependent"));
        assert!(bad("name", "nome").contains("docs/hashes.md"));
        assert!(bad("slice_masks", "base").contains("docs/hashes.md"));
    }

    #[test]
    fn a_measurement_that_cannot_be_is_refused() {
        let parse = |wrong: &str, doubt: &str| {
            let more = format!("wrong = {wrong}\nlog10_doubt = {doubt}\n");
            HashFile::parse(&format!("{TEXT}[measured]\nobservations = 1\n{more}"))
        };
        assert!(parse("0.05", "-30.5").is_ok() && parse("1", "0").is_ok());
        for wrong in ["nan", "inf", "-inf", "-0.01", "1.01"] {
            let said = parse(wrong, "-30.5").unwrap_err().to_string();
            assert!(said.contains("measured.wrong") && said.contains("docs/hashes.md"), "{said}");
        }
        for doubt in ["nan", "inf", "0.5"] {
            let said = parse("0.05", doubt).unwrap_err().to_string();
            assert!(said.contains("log10_doubt"), "{said}");
        }
    }

    #[test]
    fn a_hash_fits_a_cache_with_as_many_sets() {
        let file = HashFile::parse(TEXT).unwrap();
        let cache = |sets| CacheGeometry {
            level: CacheLevel::L3,
            kind: CacheKind::Unified,
            size_bytes: u64::from(sets) * 20 * 64,
            line_bytes: 64,
            ways: 20,
            sets,
            slices: None,
            shared_cpus: 4,
            last_level: true,
        };
        assert_eq!(file.index_of(&cache(8192)).unwrap().set_bits(), 11);
        let other = file.index_of(&cache(8192 * 3)).unwrap_err().to_string();
        assert!(other.contains("24576 sets of this L3"), "{other}");
    }
}
