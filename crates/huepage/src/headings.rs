//! Headings under which help lists options: everyday ones have none and come first.

/// What can be done besides giving a program colours.
pub const FEATURES: &str = "Pages and files";
/// What few need.
pub const TUNING: &str = "Tuning";
