//! What is said about machine files that cannot be: the line, the part, and what would be right.

use huepage_sim::machine::Machine;

/// A sound machine, with a line in place of one of its own.
fn edited(old: &str, new: &str) -> String {
    let text = "name = \"m\"\ncores = 2\nmemory = \"1G\"\nmemory_latency = 9\n\n\
        [[cache]]\nlevel = 1\nsize = \"8K\"\nways = 1\nlatency = 1\n\n\
        [[cache]]\nlevel = 2\nsize = \"64K\"\nways = 4\nlatency = 9\nshared_by = 2\n\n\
        [[tlb]]\nlevel = 1\nentries = 64\nways = 0\n";
    assert_eq!(text.matches(old).count(), 1, "`{old}` in the machine");
    text.replace(old, new)
}

/// What is wrong after the edit; `fine` if nothing.
fn said(old: &str, new: &str) -> String {
    Machine::parse(&edited(old, new)).map_or_else(|error| error.to_string(), |_| "fine".into())
}

#[test]
fn every_extra_can_be_described() {
    let all = "ways = 1\nindex_by = \"virtual\"\nwrite = \"through-no-allocate\"\n\
        write_buffer = { entries = 4, retire = 5 }\nnext_line = { degree = 1, on = false }\n\
        stride = { degree = 2, table = 16 }\nvictim = { entries = 8, latency = 5 }";
    assert_eq!(said("ways = 1", all), "fine");
    assert_eq!(said("ways = 1", "ways = 1\ncolumn_associative = { latency = 3 }"), "fine");
    let walk = "cores = 2\nwalk = { levels = 4, from = 2, caches = [32, 8] }";
    assert_eq!(said("cores = 2", walk), "fine");
    assert_eq!(
        said("entries = 64", "entries = 64\nfill = \"software\"\nreplacement = \"not-last-used\""),
        "fine"
    );
    let walk = "cores = 2\nwalk = { table = \"hashed\", from = 2 }";
    assert_eq!(said("cores = 2", walk), "fine");
    let files = "cores = 2\nhandler_latency = 31\npage_cache = { size = \"512M\", \
        miss_latency = 90000, write_latency = 10, replacement = \"lru\", read_ahead = 32 }";
    assert_eq!(said("cores = 2", files), "fine");
}

#[test]
fn software_takes_30_cycles_if_nothing_is_said_and_fills_the_last_level_only() {
    let text = edited("cores = 2", "cores = 2\nwalk_latency = 7");
    let machine = Machine::parse(&text).unwrap();
    assert_eq!((machine.handler_latency, machine.walk_latency), (30, 7));
    let old = "entries = 64\nways = 0";
    let two =
        "entries = 64\nways = 0\nfill = \"software\"\n[[tlb]]\nlevel = 2\nentries = 256\nways = 4";
    assert_eq!(
        said(old, two),
        "line 19: L1 unified TLB: `fill = \"software\"` above the L2 unified TLB; give it to the last level only"
    );
    assert_eq!(said(old, &format!("{two}\npages = [\"2M\"]")), "fine");
}

#[test]
fn what_is_described_is_built() {
    let text = edited(
        "shared_by = 2",
        "index = { kind = \"xor\", line_bits = 6, set_bits = 7, slice_masks = [0x1000000] }",
    );
    let machine = Machine::parse(&text).unwrap();
    let cache = machine.cache[1].build(1);
    assert_eq!((cache.contents().sets(), cache.contents().ways()), (256, 4));
    assert_eq!(cache.set_of(0x100_0000), 128, "the first set of the second slice");
    assert!(machine.tlb[0].build().takes(0));
}

#[test]
fn messages_name_the_line_the_part_and_what_would_be_right() {
    let l1 = "line 6: L1 unified cache: ";
    let l2 = "line 12: L2 unified cache: ";
    let tlb = "line 19: L1 unified TLB: ";
    for (old, new, start, what) in [
        ("cores = 2", "cores = 0", "machine: ", "0 cores; give 1 to 1024"),
        (
            "cores = 2",
            "cores = 2\nwalk_latency = 4294967297",
            "machine: ",
            "`walk_latency = 4294967297`; give at most 4294967296 cycles",
        ),
        (
            "ways = 1",
            "ways = 1\nvictim = { entries = 1, latency = 9223372036854775807 }",
            l1,
            "`victim.latency = 9223372036854775807`; give at most 4294967296 cycles",
        ),
        (
            "ways = 1",
            "ways = 3",
            l1,
            "8192 bytes are not sets of 3 lines of 64 bytes; give a `size` that is a multiple of ways times line",
        ),
        ("ways = 1", "ways = 1\nline = 100", l1, "lines of 100 bytes; give 2^n from 16 to 4096"),
        (
            "ways = 1",
            "ways = 2\ncolumn_associative = { latency = 3 }",
            l1,
            "column-associative with 2 ways and 64 sets; give 1 way and 2^n sets",
        ),
        (
            "ways = 1",
            "ways = 1\ninclusion = \"inclusive\"",
            l1,
            "`inclusion` is about the levels above, and there is none; leave it out",
        ),
        (
            "ways = 1",
            "ways = 1\nwrite_buffer = { entries = 0, retire = 5 }",
            l1,
            "`write_buffer.entries = 0`; give 1 to 1024",
        ),
        (
            "ways = 1",
            "ways = 1\nstride = { degree = 1, table = 0 }",
            l1,
            "`stride.table = 0`; give 1 to 65536",
        ),
        ("shared_by = 2", "shared_by = 3", l2, "shared by 3 of 2 cores; give a divisor"),
        (
            "shared_by = 2",
            "index_by = \"virtual\"",
            l2,
            "a virtual index below another cache; give `index_by = \"physical\"`",
        ),
        (
            "shared_by = 2",
            "inclusion = \"exclusive\"\nline = 128",
            l2,
            "exclusive with lines of 128 bytes below the L1 unified cache; give 64",
        ),
        (
            "shared_by = 2",
            "inclusion = \"exclusive\"\nwrite = \"through-allocate\"",
            l2,
            "exclusive and write-through; give `write = \"back-allocate\"`",
        ),
        (
            "shared_by = 2",
            "line = 32",
            l2,
            "lines of 32 bytes below the L1 unified cache; give at least 64",
        ),
        (
            "shared_by = 2",
            "kind = \"data\"",
            "line 12: L2 data cache: ",
            "it is split below the L1 unified cache; give `kind = \"unified\"`",
        ),
        (
            "shared_by = 2",
            "index = { kind = \"linear\", line_bits = 6, set_bits = 4 }",
            l2,
            "an index for 16 sets in 1 slices; give one for 256 sets",
        ),
        (
            "level = 2",
            "level = 1",
            "line 12: L1 unified cache: ",
            "a second cache of this level beside the L1 unified cache; give another `level`",
        ),
        (
            "entries = 64",
            "entries = 64\npages = [\"5K\"]",
            tlb,
            "pages of 5120 bytes; give 2^n from 4K to 1G",
        ),
        ("entries = 64", "entries = 0", tlb, "0 entries in sets of 0; give a multiple up to 2^20"),
        (
            "cores = 2",
            "cores = 2\nwalk = { table = \"hashed\", caches = [4] }",
            "machine: ",
            "walk caches of a hashed table, which has no levels; leave them out",
        ),
        (
            "cores = 2",
            "cores = 2\npage_cache = { size = 4095 }",
            "machine: ",
            "a page cache below one page; give a `size` of 4K or more",
        ),
        (
            "cores = 2",
            "cores = 2\nwalk = { from = 3 }",
            "machine: ",
            "a walk from L3; give the level of a data cache",
        ),
    ] {
        assert_eq!(said(old, new), format!("{start}{what}"));
    }
}

#[test]
fn text_that_is_no_description_is_placed_by_line() {
    for (old, new, start) in [
        ("ways = 1", "ways = 1\nwayz = 2", "line 10: unknown field `wayz`"),
        ("ways = 1", "ways = \"x\"", "line 9: invalid type: string \"x\""),
        (
            "ways = 1",
            "ways = 1\nwrite_buffer = { entries = 4, retire = 5, size = 1 }",
            "line 10: unknown field `size`",
        ),
        ("ways = 1", "ways = ", "line 9: "),
        ("size = \"8K\"", "size = \"8Q\"", "line 8: `8Q` is not a size"),
        ("size = \"8K\"", "size = 8.5", "line 8: this is not a size; write a number of bytes"),
        ("size = \"8K\"", "size = -8", "line 8: this is not a size; write a number of bytes"),
        ("ways = 4", "ways = 4\nreplacement = \"mru\"", "line 16: unknown variant `mru`"),
        ("cores = 2", "cores = 2\npage_cache = { frames = 3 }", "line 3: unknown field `frames`"),
    ] {
        let said = said(old, new);
        assert!(said.starts_with(start) && !said.contains('\n'), "{said}");
    }
}

#[test]
fn two_tlbs_of_a_level_share_no_page_size() {
    let second = |pages: &str| {
        format!("ways = 0\n\n[[tlb]]\nlevel = 1\nentries = 8\nways = 4\npages = [{pages}]")
    };
    assert_eq!(said("ways = 0", &second("\"2M\"")), "fine");
    let wrong = "line 24: L1 unified TLB: a second TLB of this level for the same pages; give other `pages`";
    assert_eq!(said("ways = 0", &second("\"4K\", \"2M\"")), wrong);
}
