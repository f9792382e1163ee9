//! Policies: feedback in, actions out; no I/O, no clock.
