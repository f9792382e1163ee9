//! Runs one workload natively and as a trace, and prints the checksum of both, the time of both
//! and what the trace consists of; without arguments, the list of workloads.
//!
//! `cargo run --release -p huepage-sim --example workload -- art:size=3M,seed=7`

use std::collections::HashSet;
use std::time::Instant;

use huepage_sim::record::{AccessKind, Record};
use huepage_sim::workloads::{self, FileNumber, WorkloadSpec};

fn main() {
    let Some(text) = std::env::args().nth(1) else { return list() };
    match text.parse() {
        Ok(spec) => show(spec),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2);
        }
    }
}

fn list() {
    for workload in workloads::all() {
        let (kib, rounds) = (workload.size >> 10, workload.rounds);
        println!("{:<18}{kib:>8} KiB x {rounds:<6}{}", workload.name, workload.summary);
        println!("{:<18}for {}", "", workload.stands_for);
    }
}

fn show(spec: WorkloadSpec) {
    println!("{spec}");
    let start = Instant::now();
    let native = spec.run_native();
    println!("native   {native:016x}  {:.3} s", start.elapsed().as_secs_f64());
    let (mut records, mut sum) = (0_u64, 0_u64);
    let start = Instant::now();
    let traced = spec.run(&mut |record: Record| {
        records += 1;
        sum = sum.wrapping_add(record.address.0);
    });
    let seconds = start.elapsed().as_secs_f64();
    let rate = records as f64 / seconds / 1e6;
    println!("traced   {traced:016x}  {seconds:.3} s, {rate:.0} M accesses/s (sum {sum:x})");
    describe(spec);
    if native != traced {
        eprintln!("the traced run computed something else than the native one");
        std::process::exit(1);
    }
}

fn describe(spec: WorkloadSpec) {
    let (mut kinds, mut instructions, mut in_files) = ([0_u64; 3], 0_u64, 0_u64);
    let mut pages = HashSet::new();
    let mut last = u64::MAX;
    spec.run(&mut |record: Record| {
        kinds[record.kind as usize] += 1;
        instructions += u64::from(record.instructions);
        in_files += u64::from(FileNumber::of(record.address).is_some());
        let page = record.address.vpn().0;
        if page != last {
            pages.insert(page);
            last = page;
        }
    });
    let (loads, stores) = (kinds[AccessKind::Load as usize], kinds[AccessKind::Store as usize]);
    println!("{loads} loads, {stores} stores ({in_files} in files), {instructions} instructions");
    println!("{} pages of 4 KiB", pages.len());
}
