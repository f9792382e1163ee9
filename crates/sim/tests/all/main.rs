//! The simulator against naive models, and its systems by what their modules promise. One binary, as
//! linking takes longer than most of the tests.

#[path = "../naive/mod.rs"]
mod naive;

mod caches;
mod coloris;
mod conflicts;
mod features;
mod heat;
mod lab;
mod lab_tlbs;
mod machine_files;
mod machines;
mod page_cache;
mod parts;
mod rocs_sensors;
mod schedules;
mod srm;
mod strips;
mod superpages;
mod systems;
mod timing;
mod tlbs;
mod trace_format;
mod trace_import;
mod trace_mutated;
mod trace_naive;
mod workloads;
