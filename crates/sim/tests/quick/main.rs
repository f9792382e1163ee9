#[path = "../naive/mod.rs"]
mod naive;
#[path = "../all/caches.rs"]
mod caches;
#[path = "../all/features.rs"]
mod features;
#[path = "../all/systems.rs"]
mod systems;
