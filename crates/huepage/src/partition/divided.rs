//! The colours of a group by what lies in them.

use huepage_color::ColorSet;

/// The colours of some processes, by what lies in them.
#[derive(Clone, Debug, PartialEq)]
pub struct DividedColors {
    /// Those that others are kept from.
    pub held: ColorSet,
    /// For memory of the processes: of a buffer alone those of the buffer.
    pub own: ColorSet,
    /// For pages that pollute, where all else is confined too.
    pub buffer: Option<ColorSet>,
    /// For files.
    pub files: ColorSet,
}
