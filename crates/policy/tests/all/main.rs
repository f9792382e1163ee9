//! Policies by what their module promises, against naive models. One binary, as linking takes longer than most of the tests.

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
