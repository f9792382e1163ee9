//! A profile of pages, as policies want it that know counters ([`crate::rocs`]), made of what was seen of
//! segments: how often each page that is used is requested of the cache, and misses. In the end the profile
//! is complete.

use huepage_color::Vpn;

use super::estimate::uses;
use super::{Errors, Segment, whole};
use crate::event::Event;

/// Requests of a profile, about; a page has at least one.
const REQUESTS: f64 = 1e6;
/// Requests of a page that is used as often as can be told, at most.
const FINEST: f64 = 256.0;

/// Tells of every page of the segments. `pages`: the resident pages between two pages, the ends
/// included. One event for each page.
pub fn tell(
    segments: &[Segment],
    errors: Errors,
    mut pages: impl FnMut(&Segment) -> Vec<Vpn>,
    mut each: impl FnMut(Event),
) {
    let used = segments.iter().filter(|segment| segment.used > 0);
    let rated: Vec<(&Segment, f64)> = used.map(|s| (s, s.there(errors))).collect();
    let all: f64 = rated.iter().map(|(s, there)| s.used_pages() * uses(*there)).sum();
    let scale = (REQUESTS / all.max(1.0)).min(FINEST);
    for (segment, there) in rated {
        let requests = whole(uses(there) * scale).max(1);
        let misses = whole(requests as f64 * (1.0 - there)).min(requests);
        for page in pages(segment) {
            each(Event::Profiled { page, requests, misses });
        }
    }
    each(Event::AccessedOver);
}

#[cfg(test)]
mod tests {
    use huepage_color::ColorSet;

    use super::*;
    use crate::event::{Action, Policy};
    use crate::rocs::{Rocs, RocsSettings, SearchMethod, Stage};

    fn segment(first: u64, pages: u64, share: f64, used: bool) -> Segment {
        let (sampled_pages, samples) = (u32::try_from(pages).unwrap(), pages * 20);
        let found = whole(share * samples as f64);
        let used = if used { sampled_pages } else { 0 };
        Segment {
            first: Vpn(first),
            last: Vpn(first + pages - 1),
            sampled_pages,
            used,
            samples,
            found,
            pages,
        }
    }

    fn all(segment: &Segment) -> Vec<Vpn> {
        (segment.first.0..=segment.last.0).map(Vpn).collect()
    }

    #[test]
    fn pages_have_samples_by_use_and_misses_by_what_is_not_there() {
        let parts = [
            segment(0, 100, 0.9, true),
            segment(100, 1000, 0.05, true),
            segment(5000, 50, 0.0, false),
        ];
        let mut counts = std::collections::HashMap::<u64, [u64; 2]>::new();
        let mut over = 0;
        tell(&parts, Errors::default(), all, |event| match event {
            Event::Profiled { page, requests, misses } => {
                assert_eq!(counts.insert(page.0, [requests, misses]), None, "once");
            }
            Event::AccessedOver => over += 1,
            other => panic!("{other:?}"),
        });
        assert_eq!((counts.len(), over), (1100, 1));
        let [hot, hot_missed] = counts[&50];
        let [scan, scan_missed] = counts[&500];
        assert!(
            hot > 20 * scan && hot_missed * 8 < hot && scan_missed * 10 > scan * 9,
            "{counts:?}"
        );
    }

    /// A hot set beside a stream that is larger than the cache: the policy confines the stream.
    #[test]
    fn rocs_confines_what_the_profile_says() {
        let buffer = ColorSet::parse("0-1", 32).unwrap();
        let method = SearchMethod::Model { ways: 16 };
        let settings = RocsSettings {
            method,
            samples: u64::MAX,
            prefetch_off: false,
            ..RocsSettings::paper(buffer)
        };
        let mut rocs = Rocs::new(settings);
        let parts = [segment(0, 384, 0.6, true), segment(1000, 2048, 0.1, true)];
        let (mut actions, mut time) = (Vec::new(), 0);
        for part in &parts {
            for page in all(part) {
                rocs.handle(
                    Event::Placed { page, color: Some(huepage_color::Color(5)) },
                    &mut actions,
                );
            }
        }
        while rocs.stage != Stage::Profiling {
            time += 100_000_000;
            rocs.handle(Event::MissOverflow { misses: 1_000_000 }, &mut actions);
            rocs.handle(Event::Progress { cycles: time, instructions: time }, &mut actions);
        }
        tell(&parts, Errors::default(), all, |event| rocs.handle(event, &mut actions));
        assert_eq!(rocs.stage, Stage::Baseline);
        actions.clear();
        while rocs.stage == Stage::Baseline {
            time += 10_000_000;
            rocs.handle(Event::Progress { cycles: time, instructions: time }, &mut actions);
        }
        let confined =
            |a: &&Action| matches!(a, Action::Recolour { page, to } if page.0 >= 1000 && to.0 < 2);
        // What fits beside the hot set may stay.
        assert_eq!(actions.iter().filter(confined).count(), 384 + 2048 - 30 * 15);
    }
}
