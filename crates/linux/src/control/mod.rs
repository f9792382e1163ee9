//! What supervisors leave for commands and for each other: the socket on which requests come ([`socket`]),
//! named groups that outlive their supervisor ([`groups`]).

pub mod groups;
pub mod socket;
