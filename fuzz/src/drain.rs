//! What all readers of traces are put through: to the end or the first error, which must be
//! one line, and nothing after it.

use huepage_sim::trace::{Batches as _, Format, detect, open};

/// Reads `bytes` as a trace of a format.
pub fn drain(bytes: &[u8], format: Format) {
    let _ = detect(bytes);
    let Ok(mut trace) = open(bytes, format) else { return };
    let mut batch = Vec::new();
    loop {
        match trace.next_batch(&mut batch) {
            Ok(true) => assert!(!batch.is_empty()),
            Ok(false) => return,
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "{error}");
                assert!(matches!(trace.next_batch(&mut batch), Ok(false)));
                return;
            }
        }
    }
}
