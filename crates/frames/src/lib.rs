//! Colour pools: frames sorted by colour and the order in which they are handed out.
