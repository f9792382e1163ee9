//! Tests beside which no other live test runs (`common::live_alone`). They are in one module, since each that stood
//! among others would wait for one of them to end, while nothing else begins.

mod live_page_cache;
mod live_page_cache_leases;
mod live_text;
mod live_warm;
