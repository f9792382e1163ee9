//! What a policy of the thesis had done, page by page. [`Watched`] stands between the engine and the policy, passes
//! everything on and changes nothing: it notes which pages were moved, which conflicts the CML buffer showed
//! them in, and which superpages there are. Costs are not its business.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use huepage_color::{Color, Vpn};
use huepage_policy::conflict::pages::PageColors;
use huepage_policy::{Action, Event, Policy};

use crate::run::lock;

/// What was noted, by base page.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Times that each page was recoloured.
    pub moved: BTreeMap<u64, u32>,
    /// Pages that became part of a superpage.
    pub promoted: BTreeSet<u64>,
    /// Superpages that there are: log2 of the base pages of each, by the first of them.
    pub superpages: BTreeMap<u64, u32>,
    /// Times that each page was in a conflict (section 5.6.3).
    pub conflicts: BTreeMap<u64, u32>,
    /// It has begun to hear of TLB misses anew.
    pub anew: bool,
}

impl Seen {
    /// A superpage takes the place of those that are part of it.
    fn joins(&mut self, page: u64, order: u32) {
        let parts = page..page + (1 << order);
        self.superpages.retain(|first, _| !parts.contains(first));
        self.superpages.insert(page, order);
        self.promoted.extend(parts);
    }
}

/// What the CML buffer shows, as the policy reads it: pages of one colour with so many misses each conflict
/// (section 5.3.1).
#[derive(Debug)]
struct BufferReading {
    /// Misses of a page above which it can conflict.
    recolor: u64,
    colors: PageColors,
    /// Entries with as many misses since the last interrupt.
    many: Vec<(Color, Vpn)>,
}

impl BufferReading {
    /// Takes notice of an event, and gives the pages that conflict at the end of a reading.
    fn note(&mut self, event: &Event) -> Vec<Vpn> {
        self.colors.note(event);
        match *event {
            Event::CmlEntry { page, misses } if misses >= self.recolor => {
                let entry = self.colors.color(page).map(|color| (color, page));
                self.many.extend(entry);
                Vec::new()
            }
            Event::Conflict { .. } => self.take(),
            _ => Vec::new(),
        }
    }

    /// All pages of colours that more than one of them has.
    fn take(&mut self) -> Vec<Vpn> {
        self.many.sort_unstable();
        let many = std::mem::take(&mut self.many);
        let groups = many.chunk_by(|one, other| one.0 == other.0).filter(|group| group.len() > 1);
        groups.flatten().map(|(_, page)| *page).collect()
    }
}

/// Passes everything on, and notes what the engine has carried out.
pub(super) struct Watched {
    inner: Box<dyn Policy + Send>,
    seen: Arc<Mutex<Seen>>,
    buffer: Option<BufferReading>,
}

impl Watched {
    /// Around a policy. `recolor` is the number of misses of a page above which CML takes it for one that can
    /// conflict; none where there is no buffer.
    pub fn new(
        inner: Box<dyn Policy + Send>,
        seen: Arc<Mutex<Seen>>,
        recolor: Option<u64>,
    ) -> Watched {
        let reading = |recolor| {
            let (colors, many) = (PageColors::default(), Vec::new());
            BufferReading { recolor, colors, many }
        };
        Watched { inner, seen, buffer: recolor.map(reading) }
    }

    fn note_event(&mut self, event: &Event) {
        match *event {
            Event::Moved { page } => *lock(&self.seen).moved.entry(page.0).or_default() += 1,
            Event::Promoted { page, order } => lock(&self.seen).joins(page.0, order),
            Event::Demoted { page, order, .. } => {
                lock(&self.seen).superpages.remove(&(page.0 >> order << order));
            }
            _ => {}
        }
        let Some(buffer) = &mut self.buffer else { return };
        for page in buffer.note(event) {
            *lock(&self.seen).conflicts.entry(page.0).or_default() += 1;
        }
    }

    fn note_actions(&mut self, actions: &[Action]) {
        if actions.iter().any(|action| matches!(action, Action::TellTlbMisses(true))) {
            lock(&self.seen).anew = true;
        }
        let Some(buffer) = &mut self.buffer else { return };
        for action in actions {
            if let Action::Recolour { page, to } = *action {
                buffer.colors.recolour(page, to);
            }
        }
    }
}

impl Policy for Watched {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.note_event(&event);
        let before = actions.len();
        self.inner.handle(event, actions);
        self.note_actions(&actions[before..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Policy for Nothing {
        fn handle(&mut self, _: Event, _: &mut Vec<Action>) {}
    }

    /// Moves page 1 to colour 5 at every conflict.
    struct Mover;

    impl Policy for Mover {
        fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
            if matches!(event, Event::Conflict { .. }) {
                actions.push(Action::Recolour { page: Vpn(1), to: Color(5) });
            }
        }
    }

    fn noted(
        inner: impl Policy + Send + 'static,
        recolor: Option<u64>,
        events: &[Event],
    ) -> Arc<Mutex<Seen>> {
        let seen = Arc::default();
        let mut watched = Watched::new(Box::new(inner), Arc::clone(&seen), recolor);
        events.iter().for_each(|event| watched.handle(*event, &mut Vec::new()));
        seen
    }

    #[test]
    fn what_was_moved_is_noted_by_page() {
        let events = [
            Event::Moved { page: Vpn(3) },
            Event::Moved { page: Vpn(3) },
            Event::Promoted { page: Vpn(4), order: 1 },
        ];
        let seen = noted(Nothing, None, &events);
        let seen = lock(&seen);
        assert_eq!(seen.moved, BTreeMap::from([(3, 2)]));
        assert_eq!(seen.promoted, BTreeSet::from([4, 5]));
    }

    #[test]
    fn superpages_are_those_that_are_left() {
        let promoted = |page, order| Event::Promoted { page: Vpn(page), order };
        let demoted = Event::Demoted { page: Vpn(19), order: 2, interfering: false };
        let events =
            [promoted(4, 1), promoted(6, 1), promoted(8, 1), promoted(4, 2), promoted(16, 2)];
        let left =
            |events: &[Event]| std::mem::take(&mut lock(&noted(Nothing, None, events)).superpages);
        assert_eq!(left(&events), BTreeMap::from([(4, 2), (8, 1), (16, 2)]));
        assert_eq!(left(&[&events[..], &[demoted]].concat()), BTreeMap::from([(4, 2), (8, 1)]));
    }

    #[test]
    fn pages_conflict_where_several_of_a_colour_miss_often() {
        let faulted = |page, color| Event::Faulted { page: Vpn(page), color: Some(Color(color)) };
        let entry = |page, misses| Event::CmlEntry { page: Vpn(page), misses };
        let conflict = Event::Conflict { page: Vpn(1), misses: 320 };
        let reading = [entry(1, 320), entry(2, 260), entry(3, 259), entry(4, 300), conflict];
        // 3 misses too seldom, and 4 is alone in its colour.
        let first = [faulted(1, 7), faulted(2, 7), faulted(3, 7), faulted(4, 8)];
        let twice = [&first[..], &reading, &reading].concat();
        let times = |events: &[Event]| {
            let seen = noted(Mover, Some(260), events);
            std::mem::take(&mut lock(&seen).conflicts)
        };
        assert_eq!(times(&twice), BTreeMap::from([(1, 2), (2, 2)]));
        // Once 1 is elsewhere it conflicts with none of them.
        let moved = [Event::Moved { page: Vpn(1) }];
        let all = [&first[..], &reading, &moved, &reading].concat();
        assert_eq!(times(&all), BTreeMap::from([(1, 1), (2, 1)]));
    }
}
