//! What supervisors leave for commands and for each other: the socket on which requests come ([`control`]),
//! named groups that outlive their supervisor ([`groups`]).

pub mod control;
pub mod groups;
