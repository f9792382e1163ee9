//! What the plugin of the lab sends, in words of 64 bits: an access to memory by its physical address,
//! a mark that a guest made, or what an emulated PMU is made of: instructions, and the address of a load as the
//! program has it; and what TLBs are made of: pages, and what becomes of them. The plugin compiles this file as
//! well; it uses nothing else.

const ADDRESS_BITS: u32 = 44;
const STORE: u64 = 1 << ADDRESS_BITS;
const KERNEL: u64 = 1 << 45;
const SIZE_AT: u32 = 46;
const CPU_AT: u32 = 49;
const MARK_AT: u32 = 57;

/// Bytes of the instruction by which guests make a mark.
pub const MARK_BYTES: usize = 7;
/// A NOP with an address of 32 bits that no compiler writes; its fourth byte is the mark.
const NOP: [u8; MARK_BYTES] = [0x0f, 0x1f, 0x80, 0, b'L', b'O', b'C'];

/// Programs that are told apart by their numbers, 0 being all that was not named.
pub const OWNERS: usize = 16;

/// What a guest can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabMark {
    /// Accesses are told from now on.
    Start = 1,
    /// The next access of this processor by a program is to the page by which the guest says whose
    /// turn it is: see [`OWNER_STRIDE`].
    TurnPage = 2,
    /// Accesses count from now on.
    Begin = 3,
    /// They no longer do, and are no longer told.
    End = 4,
    /// The guest wants to know what its PMU has seen, and waits.
    Ask = 5,
    /// Not a guest's: the next access is sampled; with the address as the program has it.
    Sampled = 6,
    /// Not a guest's: instructions of programs on this processor since the last such word.
    Instructions = 7,
    /// Not a guest's: this processor translates by another page table; with the frame of its root.
    Root = 8,
    /// Not a guest's: the next access is to this page, and so are all that follow to the same frame until another
    /// page is told; with a [`LabPage`].
    Page = 9,
    /// Not a guest's: a page of the table that this processor translates by has lost its frame; with a [`LabPage`].
    Gone = 10,
}

/// A store of the kernel to the page of turns says that the processor runs a program of owner N from now
/// on; N is the offset in the page over this.
pub const OWNER_STRIDE: u64 = 64;

/// Behind the places of owners, where the guest has a PMU: a store to place D x 64 + N, of 8 bytes each, says that
/// digit D (the lowest is 0, of 6 bits each) of the number of the process is N. The highest comes last.
pub const DIGITS_AT: u64 = OWNER_STRIDE * OWNERS as u64;
/// Digits of a process's number, and values of one.
pub const DIGITS: usize = 4;
/// log2 of the values of a digit.
pub const DIGIT_BITS: u32 = 6;

/// Behind the places of digits, where TLBs are wanted: what is stored there is where the kernel has the root of the
/// page table that the processor translates by from now on.
pub const ROOT_AT: u64 = DIGITS_AT + ((DIGITS as u64 * 8) << DIGIT_BITS);

/// A page by the guest's page table, as words carry it: the number of a base page of it, and how large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LabPage(pub u64);

impl LabPage {
    /// Bits of a page's number: those of addresses of 57 bits.
    pub const NUMBER_BITS: u32 = 45;
    /// Bits of all.
    pub const BITS: u32 = Self::NUMBER_BITS + 2;
    /// The level that says that no table has it.
    const NONE: u64 = 3;

    /// A page whose entry is on a level of the table: 0 is 4 KiB, 1 is 2 MiB, 2 is 1 GiB; none: no table has it.
    pub const fn new(number: u64, level: Option<u32>) -> LabPage {
        let level = match level {
            Some(level) if level < 3 => level as u64,
            _ => Self::NONE,
        };
        LabPage(number & ((1 << Self::NUMBER_BITS) - 1) | level << Self::NUMBER_BITS)
    }

    /// The number of the base page, without what canonical addresses repeat.
    pub const fn number(self) -> u64 {
        self.0 & ((1 << Self::NUMBER_BITS) - 1)
    }

    /// The level of its entry; none: no table has it.
    pub const fn level(self) -> Option<u32> {
        match self.0 >> Self::NUMBER_BITS & 3 {
            0 => Some(0),
            1 => Some(1),
            2 => Some(2),
            _ => None,
        }
    }

    /// Whether it is in the kernel's half of all addresses.
    pub const fn is_kernel(self) -> bool {
        self.0 >> (Self::NUMBER_BITS - 1) & 1 == 1
    }
}

impl LabMark {
    /// By its number.
    pub const fn of(number: u64) -> Option<LabMark> {
        match number {
            1 => Some(LabMark::Start),
            2 => Some(LabMark::TurnPage),
            3 => Some(LabMark::Begin),
            4 => Some(LabMark::End),
            5 => Some(LabMark::Ask),
            6 => Some(LabMark::Sampled),
            7 => Some(LabMark::Instructions),
            8 => Some(LabMark::Root),
            9 => Some(LabMark::Page),
            10 => Some(LabMark::Gone),
            _ => None,
        }
    }
}

/// The mark that an instruction makes, if it is one that does.
pub fn marked(instruction: &[u8; MARK_BYTES]) -> Option<LabMark> {
    let mut nop = NOP;
    nop[3] = instruction[3];
    let own = nop == *instruction && instruction[3] <= LabMark::Ask as u8;
    if own { LabMark::of(instruction[3] as u64) } else { None }
}

/// One word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabWord(pub u64);

impl LabWord {
    /// An access of 2^`size` bytes; `kernel`: to an address of the kernel.
    pub const fn access(cpu: u32, address: u64, size: u32, store: bool, kernel: bool) -> LabWord {
        let mut word = address & (STORE - 1);
        word |= if store { STORE } else { 0 };
        word |= if kernel { KERNEL } else { 0 };
        word |= (size as u64 & 7) << SIZE_AT;
        LabWord(word | (cpu as u64 & 0xff) << CPU_AT)
    }

    /// A mark.
    pub const fn mark(cpu: u32, mark: LabMark) -> LabWord {
        LabWord((mark as u64) << MARK_AT | (cpu as u64 & 0xff) << CPU_AT)
    }

    /// A mark with a number, of which the lowest 49 bits are kept.
    pub const fn told(cpu: u32, mark: LabMark, number: u64) -> LabWord {
        LabWord(LabWord::mark(cpu, mark).0 | number & ((1 << CPU_AT) - 1))
    }

    /// The number that a mark came with.
    pub const fn number(self) -> u64 {
        self.0 & ((1 << CPU_AT) - 1)
    }

    /// The mark, if it is one.
    pub const fn as_mark(self) -> Option<LabMark> {
        LabMark::of(self.0 >> MARK_AT)
    }

    /// The processor.
    pub const fn cpu(self) -> usize {
        (self.0 >> CPU_AT & 0xff) as usize
    }

    /// The first byte touched.
    pub const fn address(self) -> u64 {
        self.0 & (STORE - 1)
    }

    /// Bytes touched.
    pub const fn bytes(self) -> u64 {
        1 << (self.0 >> SIZE_AT & 7)
    }

    /// Whether it is a store.
    pub const fn is_store(self) -> bool {
        self.0 & STORE != 0
    }

    /// Whether it is to an address of the kernel.
    pub const fn is_kernel(self) -> bool {
        self.0 & KERNEL != 0
    }
}
