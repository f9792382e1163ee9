//! Policies by what their module promises, against naive models. One binary, as linking takes longer than most of the tests.

use huepage_policy::{Action, Event, Policy};

mod census;
mod coloris;
mod coloris_groups;
mod coloris_sizes;
mod conflict;
mod conflict_combined;
mod conflict_in_use;
mod decisions;
mod partition;
mod recording;
mod recording_touches;
mod registry;
mod rocs;
mod rocs_weighed;
mod srm;
mod superpage;
mod superpage_policies;

/// What a policy wants done about an event.
fn tell(policy: &mut dyn Policy, event: Event) -> Vec<Action> {
    let mut actions = Vec::new();
    policy.handle(event, &mut actions);
    actions
}
