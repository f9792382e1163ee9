//! Threads that watch one process each ([`host`]), and what they and the thread that moves pages say to each other
//! ([`request_slot`]).

pub(crate) mod host;
pub(crate) mod request_slot;
