//! Verdicts on hand-made filters, on trees as libseccomp compiles them, and on random programs,
//! which are compared with the kernel itself; and filters read back from a stopped child.

use std::collections::BTreeMap;
use std::io;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::bpf::{Insn, ProgramError, code};
use super::*;

const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000;
const DENY: u32 = 0x0005_0001;
/// `JMP` with a constant.
const JEQ: u16 = code::JMP | code::JEQ;
const JGE: u16 = code::JMP | code::JGE;

fn program(list: &[Insn]) -> BpfProgram {
    BpfProgram::new(list.to_vec()).expect("a program as the kernel takes it")
}

fn filters(lists: &[&[Insn]]) -> Filters {
    Filters::Programs(lists.iter().map(|list| program(list)).collect())
}

fn ret(value: u32) -> Insn {
    Insn::new(code::RET_K, value)
}

/// Loads word `i` of the call's data.
fn load(i: u32) -> Insn {
    Insn::new(code::LD_ABS, 4 * i)
}

fn call(number: i64, arguments: [u64; 6]) -> Probe {
    let arguments = arguments.map(Some);
    Probe { name: "a call", number, arguments, instruction_pointer: Some(0x7000_0000_1000) }
}

/// Denies `ioctl` with one request, checks the architecture first.
fn no_request(request: u32) -> Vec<Insn> {
    vec![
        load(1),
        Insn::jump(JEQ, 0xc000_003e, 1, 0),
        ret(KILL),
        load(0),
        Insn::jump(JEQ, libc::SYS_ioctl as u32, 0, 5),
        load(7),
        Insn::jump(JEQ, 0, 0, 3),
        load(6),
        Insn::jump(JEQ, request, 0, 1),
        ret(DENY),
        ret(ALLOW),
    ]
}

#[test]
fn a_refusal_names_the_call() {
    let filters = filters(&[&no_request(0xc028_aa05)]);
    let moves = Probe::new("ioctl(UFFDIO_MOVE)", libc::SYS_ioctl, &[None, Some(0xc028_aa05)]);
    let copies = Probe::new("ioctl(UFFDIO_COPY)", libc::SYS_ioctl, &[None, Some(0xc028_aa03)]);
    assert_eq!(filters.refusal(&[copies]), None);
    let refusal = filters.refusal(&[copies, moves]).expect("denied");
    assert_eq!(refusal, CallRefusal { call: "ioctl(UFFDIO_MOVE)", action: FilterAction::Errno });
    assert_eq!(refusal.to_string(), "seccomp denies ioctl(UFFDIO_MOVE)");
    // The halves are compared, both of them.
    let wide = call(libc::SYS_ioctl, [0, 0x1_c028_aa05, 0, 0, 0, 0]);
    assert_eq!(filters.action(&wide), FilterAction::Allow);
}

#[test]
fn an_unknown_argument_counts_as_any() {
    let filters = filters(&[&no_request(0xc028_aa05)]);
    let any = Probe::new("ioctl(2)", libc::SYS_ioctl, &[]);
    assert_eq!(filters.action(&any), FilterAction::Errno);
    let other = Probe::new("read(2)", libc::SYS_read, &[]);
    assert_eq!(filters.action(&other), FilterAction::Allow);
}

#[test]
fn the_strongest_of_several_filters_wins() {
    let order = [
        (KILL, FilterAction::KillProcess),
        (0, FilterAction::KillThread),
        (0x0003_0000, FilterAction::Trap),
        (DENY, FilterAction::Errno),
        (0x7fc0_0000, FilterAction::Notify),
        (0x7ff0_0000, FilterAction::Trace),
        (0x7ffc_0000, FilterAction::Log),
        (ALLOW, FilterAction::Allow),
    ];
    let probe = call(0, [0; 6]);
    for (i, (strong, action)) in order.into_iter().enumerate() {
        for (weak, _) in &order[i..] {
            for pair in [[strong, *weak], [*weak, strong]] {
                let both = filters(&[&[ret(pair[0])], &[ret(pair[1])]]);
                assert_eq!(both.action(&probe), action, "{pair:x?}");
            }
        }
    }
    assert_eq!(filters(&[&[ret(0x1234_0000)]]).action(&probe), FilterAction::KillProcess);
    // An action that the kernel does not know ranks by its number.
    assert_eq!(filters(&[&[ret(0x0006_0000)], &[ret(DENY)]]).action(&probe), FilterAction::Errno);
    let unknown = [load(4), Insn::jump(JEQ, 0, 1, 0), ret(0x7ffd_0000), ret(0x7ffc_0000)];
    let any = Probe { arguments: [None; 6], ..probe };
    assert_eq!(filters(&[&unknown]).action(&any), FilterAction::KillProcess);
    assert_eq!(filters(&[&unknown, &[ret(0x7ffc_0000)]]).action(&any), FilterAction::Log);
    assert!(filters(&[&[ret(0x7ffc_0000)]]).refusal(&[probe]).is_none(), "logged, and made");
    assert_eq!(filters(&[]).refusal(&[probe]), None);
}

#[test]
fn strict_mode_permits_four_calls() {
    let permitted = |number| Filters::Strict.action(&Probe::new("", number, &[])).permits();
    assert!(permitted(libc::SYS_read) && permitted(libc::SYS_exit));
    let refusal = Filters::Strict.refusal(&[Probe::new("mmap(2)", libc::SYS_mmap, &[])]);
    assert_eq!(refusal.expect("killed").to_string(), "seccomp kills the program for mmap(2)");
}

#[test]
fn programs_that_the_kernel_would_not_take_are_refused() {
    let bad = |list: &[Insn]| BpfProgram::new(list.to_vec()).expect_err("refused");
    assert_eq!(bad(&[]), ProgramError::Length(0));
    assert_eq!(bad(&vec![ret(0); bpf::MAX_INSNS + 1]), ProgramError::Length(4097));
    assert_eq!(bad(&[load(0)]), ProgramError::Open);
    assert_eq!(bad(&[Insn::jump(JEQ, 0, 1, 0), ret(0)]), ProgramError::Jump(0));
    let far = Insn::new(code::JMP | code::JA, u32::MAX);
    assert_eq!(bad(&[far, ret(0)]), ProgramError::Jump(0));
    for insn in [
        Insn::new(code::LD_ABS, 2),
        Insn::new(code::LD_ABS, 64),
        Insn::new(code::LD_MEM, 16),
        Insn::new(code::ALU | code::DIV, 0),
        Insn::new(code::ALU | code::RSH, 32),
        Insn::new(0x94, 3),
        Insn::new(0x28, 0),
        Insn::new(u16::MAX, 0),
    ] {
        assert!(matches!(bad(&[insn, ret(0)]), ProgramError::Insn { at: 0, .. }), "{insn:?}");
    }
}

#[test]
fn a_division_by_zero_kills_the_thread() {
    let list = [Insn::new(code::ALU | code::DIV | code::X, 0), ret(ALLOW)];
    assert_eq!(filters(&[&list]).action(&call(0, [0; 6])), FilterAction::KillThread);
}

#[test]
fn many_ways_through_a_program_end() {
    // Each step depends on an unknown word, so that there are 2^400 ways through it.
    let mut list = Vec::new();
    for i in 0..400 {
        list.extend([load(4 + i % 12), Insn::jump(JGE, i, 0, 1), Insn::new(code::LDX_IMM, i)]);
        list.push(Insn::new(code::ALU | code::ADD, i));
        list.push(Insn::new(code::TAX, 0));
    }
    list.push(ret(ALLOW));
    let probe = Probe::new("", 5, &[]);
    assert_eq!(filters(&[&list]).action(&probe), FilterAction::Allow);
    // Where the ways really differ, the answer is the safe one.
    let mut list = vec![Insn::new(code::LDX_IMM, 0)];
    for i in 0..60 {
        list.extend([load(4), Insn::jump(JEQ, i, 0, 3), Insn::new(code::TXA, 0)]);
        list.extend([Insn::new(code::ALU | code::ADD, 1 << (i % 31)), Insn::new(code::TAX, 0)]);
    }
    list.push(ret(ALLOW));
    assert_eq!(filters(&[&list]).action(&probe), FilterAction::KillProcess);
}

/// What a tree does with a call: nothing but one answer, or an answer if an argument is a value.
#[derive(Clone, Copy, Debug)]
enum Rule {
    Always(u32),
    If { argument: usize, value: u64, answer: u32 },
}

/// Compiles rules as libseccomp does: the architecture, calls of the x32 kind, a binary tree over
/// the numbers, and arguments by their halves, the high one first.
fn compiled(rules: &BTreeMap<u32, Rule>, otherwise: u32) -> Vec<Insn> {
    let mut list = vec![load(1), Insn::jump(JEQ, 0xc000_003e, 1, 0), ret(KILL), load(0)];
    list.extend([Insn::jump(JGE, 0x4000_0000, 0, 1), ret(KILL)]);
    let sorted: Vec<(u32, Rule)> = rules.iter().map(|(&number, &rule)| (number, rule)).collect();
    tree(&sorted, otherwise, &mut list);
    list
}

fn tree(rules: &[(u32, Rule)], otherwise: u32, list: &mut Vec<Insn>) {
    let middle = rules.len() / 2;
    match rules {
        [] => list.push(ret(otherwise)),
        [(number, rule)] => leaf(*number, *rule, otherwise, list),
        _ => {
            // Long jumps are made by an unconditional one, as there.
            list.push(Insn::jump(JGE, rules[middle].0, 1, 0));
            let hole = list.len();
            list.push(Insn::new(code::JMP | code::JA, 0));
            tree(&rules[middle..], otherwise, list);
            list[hole].k = u32::try_from(list.len() - hole - 1).expect("short");
            tree(&rules[..middle], otherwise, list);
        }
    }
}

fn leaf(number: u32, rule: Rule, otherwise: u32, list: &mut Vec<Insn>) {
    list.extend([Insn::jump(JEQ, number, 1, 0), ret(otherwise)]);
    match rule {
        Rule::Always(answer) => list.push(ret(answer)),
        Rule::If { argument, value, answer } => {
            let low = u32::try_from(4 + 2 * argument).expect("small");
            let halves = [(value >> 32) as u32, (value & 0xffff_ffff) as u32];
            list.extend([load(low + 1), Insn::jump(JEQ, halves[0], 0, 3)]);
            list.extend([load(low), Insn::jump(JEQ, halves[1], 0, 1), ret(answer)]);
            list.push(ret(otherwise));
        }
    }
}

fn meant(rules: &BTreeMap<u32, Rule>, otherwise: u32, probe: &Probe) -> FilterAction {
    let number = u32::try_from(probe.number).expect("a number");
    let answer = match rules.get(&number) {
        Some(Rule::Always(answer)) => *answer,
        Some(&Rule::If { argument, value, answer }) if probe.arguments[argument] == Some(value) => {
            answer
        }
        _ => otherwise,
    };
    bpf::Answer::new(answer).action()
}

fn answers() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![ALLOW, DENY, KILL, 0x0003_0000, 0x7ff0_0000, 0x7ffc_0000])
}

fn values() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![0, 1, 0xffff_ffff, 1 << 32, 0xc028_aa05, u64::MAX])
}

fn rules() -> impl Strategy<Value = BTreeMap<u32, Rule>> {
    let conditional = (0..6usize, values(), answers())
        .prop_map(|(argument, value, answer)| Rule::If { argument, value, answer });
    let rule = prop_oneof![answers().prop_map(Rule::Always), conditional];
    prop::collection::btree_map(0..450u32, rule, 0..200)
}

proptest! {
    #[test]
    fn trees_mean_what_their_rules_say(
        rules in rules(), otherwise in answers(), number in 0..450i64, arguments in [values(), values(), values(), values(), values(), values()],
    ) {
        let filters = filters(&[&compiled(&rules, otherwise)]);
        let probe = call(number, arguments);
        prop_assert_eq!(filters.action(&probe), meant(&rules, otherwise, &probe));
        // With unknown arguments, no answer is weaker than with any known ones.
        let unknown = Probe { arguments: [None; 6], ..probe };
        prop_assert!(filters.action(&unknown) <= filters.action(&probe));
    }

    #[test]
    fn any_words_are_refused_or_end(
        words in prop::collection::vec((0..0x100u16, any::<u8>(), any::<u8>(), any::<u32>()), 0..80), known in any::<bool>(),
    ) {
        let small = |n: u8| n % 8;
        let list = words.into_iter().map(|(code, jt, jf, k)| Insn { code, jt: small(jt), jf: small(jf), k: k % 64 });
        if let Ok(program) = BpfProgram::new(list.chain([ret(DENY)]).collect()) {
            let probe = if known { call(1, [1; 6]) } else { Probe::new("", 1, &[]) };
            // It ends, whatever the verdict.
            let data = bpf::Data::of(&probe);
            prop_assert!(!program.answers(&data).is_empty());
        }
    }
}

/// Calls of numbers from here on do not exist.
const NO_CALL: u32 = 1000;

/// Instructions that may follow each other in any order. Words 0 and 1 of the memory are set before.
fn any_insn() -> impl Strategy<Value = Insn> {
    let k = prop_oneof![0..40u32, any::<u32>(), Just(0), Just(1 << 31)];
    let x = prop::sample::select(vec![0, code::X]);
    let sums = [0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90, 0xa0];
    let alu = (prop::sample::select(sums.to_vec()), x.clone(), k.clone())
        .prop_map(|(sum, x, k)| Insn::new(code::ALU | sum | x, k));
    let tests = prop::sample::select(vec![code::JEQ, code::JGT, code::JGE, code::JSET]);
    let branch = (tests, x, k, 0..4u8, 0..4u8)
        .prop_map(|(test, x, k, jt, jf)| Insn::jump(code::JMP | test | x, k, jt, jf));
    let loads =
        [code::LD_MEM, code::LDX_MEM, code::ST, code::STX, code::LD_LEN, code::TAX, code::TXA];
    let plain = (prop::sample::select(loads.to_vec()), 0..2u32).prop_map(|(c, k)| Insn::new(c, k));
    let answer = prop::sample::select(vec![ALLOW, 0x0005_0007, 0x0005_0009, 0, 0x0003_0000]);
    prop_oneof![
        4 => (0..16u32).prop_map(load),
        4 => alu,
        4 => branch,
        3 => plain,
        1 => (0..3u32).prop_map(|k| Insn::new(code::JMP | code::JA, k)),
        1 => answer.prop_map(ret),
        1 => Just(Insn::new(code::RET_A, 0)),
    ]
}

/// A filter that lets every call that exists pass, and judges the others by `body`.
fn harmless(body: &[Insn]) -> Vec<Insn> {
    let start = [Insn::new(code::ST, 0), Insn::new(code::ST, 1), load(0)];
    let mut list = start.to_vec();
    list.extend([Insn::jump(JGE, NO_CALL, 1, 0), ret(ALLOW)]);
    list.extend_from_slice(body);
    list.push(ret(0x0005_0005));
    list
}

/// What a child saw: an errno for each call, up to the one that killed it.
#[derive(Debug, PartialEq)]
enum Seen {
    /// The kernel did not take a filter.
    Refused,
    Errnos(Vec<i32>),
}

#[repr(C)]
struct Fprog {
    len: u16,
    list: *const Insn,
}

/// Installs a filter in this thread; false if the kernel refuses it. Safe after a fork.
fn install(list: &[Insn]) -> bool {
    let program = Fprog { len: list.len() as u16, list: list.as_ptr() };
    // SAFETY: the kernel reads the instructions, which live in `list`.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program, 0, 0) == 0
    }
}

/// Makes the calls in a child that installed the filters.
fn observed(lists: &[Vec<Insn>], calls: &[[u64; 7]]) -> Seen {
    let mut ends = [0; 2];
    // SAFETY: the child keeps to system calls and ends; all results are checked.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        let pid = libc::fork();
        if pid == 0 {
            child(lists, calls, ends[1]);
        }
        assert!(pid > 0, "fork: {}", io::Error::last_os_error());
        libc::close(ends[1]);
        let mut words = Vec::new();
        let mut word = 0i32;
        while libc::read(ends[0], (&raw mut word).cast(), 4) == 4 {
            words.push(word);
        }
        libc::close(ends[0]);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
        if words == [-1] { Seen::Refused } else { Seen::Errnos(words) }
    }
}

unsafe fn child(lists: &[Vec<Insn>], calls: &[[u64; 7]], out: i32) -> ! {
    // SAFETY: system calls only; numbers from `NO_CALL` on do nothing.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        let tell = |word: i32| libc::write(out, (&raw const word).cast(), 4);
        if !lists.iter().all(|list| install(list)) {
            tell(-1);
            libc::_exit(0);
        }
        for c in calls {
            let done = libc::syscall(c[0] as libc::c_long, c[1], c[2], c[3], c[4], c[5], c[6]);
            tell(if done == 0 { 0 } else { *libc::__errno_location() });
        }
        libc::_exit(0)
    }
}

/// What a child should see by our own judgement.
fn expected(lists: &[Vec<Insn>], calls: &[[u64; 7]]) -> Seen {
    let all: Result<Vec<BpfProgram>, _> = lists.iter().cloned().map(BpfProgram::new).collect();
    let Ok(all) = all else { return Seen::Refused };
    let filters = Filters::Programs(all);
    let mut seen = Vec::new();
    for c in calls {
        let arguments = [c[1], c[2], c[3], c[4], c[5], c[6]].map(Some);
        let number = i64::try_from(c[0]).expect("small");
        let probe = Probe { name: "", number, arguments, instruction_pointer: None };
        match filters.action(&probe) {
            FilterAction::KillProcess | FilterAction::KillThread | FilterAction::Trap => break,
            FilterAction::Errno => seen.push(0),
            _ => seen.push(libc::ENOSYS),
        }
    }
    Seen::Errnos(seen)
}

#[test]
fn verdicts_are_the_kernels() {
    let word = prop_oneof![0..40u64, any::<u64>(), Just(u64::MAX), Just(1 << 32)];
    let calls = prop::collection::vec(
        (u64::from(NO_CALL)..u64::from(NO_CALL) + 8, prop::array::uniform6(word))
            .prop_map(|(n, a)| [n, a[0], a[1], a[2], a[3], a[4], a[5]]),
        1..12,
    );
    let body = prop::collection::vec(any_insn(), 0..24);
    let lists = prop::collection::vec(body, 1..3);
    let mut runner =
        TestRunner::new(Config { cases: 1500, failure_persistence: None, ..Config::default() });
    let (mut judged, mut refused) = (0, 0);
    let counts = std::cell::RefCell::new((&mut judged, &mut refused));
    let done = runner.run(&(lists, calls), |(bodies, calls)| {
        // The instruction pointer is the one word that the test does not know.
        let known = |insn: &Insn| insn.code != code::LD_ABS || !(8..16).contains(&insn.k);
        let bodies = bodies.iter().map(|body| body.iter().copied().filter(known).collect());
        let lists: Vec<Vec<Insn>> = bodies.map(|body: Vec<Insn>| harmless(&body)).collect();
        let (seen, meant) = (observed(&lists, &calls), expected(&lists, &calls));
        // Which errno it is, if not that of a call that was made, is not judged.
        let seen = match seen {
            Seen::Errnos(all) => Seen::Errnos(
                all.into_iter().map(|e| if e == libc::ENOSYS { e } else { 0 }).collect(),
            ),
            other => other,
        };
        let mut counts = counts.borrow_mut();
        match &seen {
            Seen::Refused => *counts.1 += 1,
            Seen::Errnos(all) => *counts.0 += all.len(),
        }
        prop_assert_eq!(seen, meant);
        Ok(())
    });
    done.expect("the kernel and we agree");
    assert!(judged > 500 && refused > 50, "{judged} calls judged, {refused} programs refused");
}

/// A child that has installed filters and stopped, traced by this thread.
struct Stopped(i32);

impl Stopped {
    fn with(lists: &[Vec<Insn>]) -> Stopped {
        // SAFETY: the child makes system calls only.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above.
            unsafe {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                let done = lists.iter().all(|list| install(list));
                libc::raise(if done { libc::SIGSTOP } else { libc::SIGKILL });
                libc::_exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: `status` is live.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert!(libc::WIFSTOPPED(status), "the child installed its filters: {status:#x}");
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: a child of ours that was not waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn filters_of_a_stopped_child_are_read_back() {
    let old = harmless(&no_request(0xc028_aa05));
    let numbers = (1..300).map(|n| (NO_CALL + 3 * n, Rule::Always(DENY)));
    let new = compiled(&numbers.collect(), ALLOW);
    let child = Stopped::with(&[old.clone(), new.clone()]);
    let read = match Filters::read(&ProcRoot::default(), child.0) {
        Err(e @ (FilterError::Denied(_) | FilterError::Unsupported(_))) => {
            return huepage_testing::skip("filters_of_a_stopped_child_are_read_back", e);
        }
        other => other.expect("readable"),
    };
    assert!(read == filters(&[&old, &new]), "what was installed, the oldest first");
    let denied = Probe::new("call 1003(2)", i64::from(NO_CALL) + 3, &[]);
    let refusal = read.refusal(&[denied]);
    assert_eq!(refusal, Some(CallRefusal { call: "call 1003(2)", action: FilterAction::Errno }));
}

#[test]
fn a_child_without_filters_permits_all() {
    let child = Stopped::with(&[]);
    let probe = Probe::new("mmap(2)", libc::SYS_mmap, &[]);
    let read = Filters::read(&ProcRoot::default(), child.0).expect("readable");
    assert_eq!(read.refusal(&[probe]), None);
}
