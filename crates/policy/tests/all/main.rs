//! Policies by what their module promises, against naive models. One binary, as linking takes longer than most of the tests.

mod census;
mod coloris;
mod coloris_sizes;
mod conflict;
mod conflict_combined;
mod partition;
mod qos;
mod recording;
mod recording_touches;
mod rocs;
mod srm;
mod superpage;
mod superpage_policies;
