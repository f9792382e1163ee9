//! Everything huepage asks of Linux, in layers. A layer uses only those before it (`crates/huepage/tests/all/house/layers.rs`):
//!
//! 1. [`kernel`]: interfaces of the kernel and of the processor. No system call is made above it but to map,
//!    time and trace memory of our own.
//! 2. [`control`]: what supervisors leave for each other: requests, named groups.
//! 3. [`color`]: which colour a frame has: probing, sources of colours, who holds which colours.
//! 4. [`inject`]: system calls made by a thread of another process; programs started; the agent.
//! 5. [`sensors`]: what a process does with its memory: residency, TLB misses, accessed bits, records.
//! 6. [`engine`]: moves the pages of a group of processes.
//! 7. `watch`: threads that watch one process each.
//! 8. [`services`]: what is offered: superpages, pollute buffer, conflicts, files, program text.
//!
//! All unsafe code of the workspace lives here. No decision of a policy does: what to
//! confine, and to which colours, comes from `huepage-policy`.

pub mod color;
pub mod control;
pub mod engine;
pub mod inject;
pub mod kernel;
pub mod sensors;
pub mod services;
mod watch;
