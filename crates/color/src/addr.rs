//! Newtypes for addresses and page numbers, so that a frame is never taken for a page.
//!
//! Only conversions live here; nothing looks at what an address holds.

use std::fmt;

/// Bytes in a base page (x86-64, and what every colour in this crate is about).
pub const PAGE_BYTES: u64 = 4096;

/// An address as text, for serde: numbers of JSON lose digits beyond 2^53, and nobody reads them.
///
/// # Errors
/// What the serializer fails of.
pub fn as_hex<S: serde::Serializer>(address: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{address:#x}"))
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

number!(
    /// A physical address in bytes.
    PhysAddr
);
number!(
    /// A virtual address in bytes, in some process.
    VirtAddr
);
number!(
    /// A physical frame number: the physical address divided by 4096.
    Pfn
);
number!(
    /// A virtual page number: the virtual address divided by 4096.
    Vpn
);

impl PhysAddr {
    /// The frame that holds this address.
    pub const fn pfn(self) -> Pfn {
        Pfn(self.0 / PAGE_BYTES)
    }
}

impl VirtAddr {
    /// The page that holds this address.
    pub const fn vpn(self) -> Vpn {
        Vpn(self.0 / PAGE_BYTES)
    }
}

impl Pfn {
    /// The first byte of the frame.
    pub const fn base(self) -> PhysAddr {
        PhysAddr(self.0 * PAGE_BYTES)
    }
}

impl Vpn {
    /// The first byte of the page.
    pub const fn base(self) -> VirtAddr {
        VirtAddr(self.0 * PAGE_BYTES)
    }
}

/// A page size the processor knows; always a power of two of at least 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageSize(u64);

impl PageSize {
    /// 4 KiB.
    pub const BASE: PageSize = PageSize(PAGE_BYTES);
    /// 2 MiB.
    pub const HUGE: PageSize = PageSize(2 << 20);
    /// 1 GiB.
    pub const GIGANTIC: PageSize = PageSize(1 << 30);

    /// A page of 2^`order` base pages; orders above 18 (1 GiB) are `None`.
    pub const fn from_order(order: u32) -> Option<PageSize> {
        if order > 18 { None } else { Some(PageSize(PAGE_BYTES << order)) }
    }

    /// Size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// log2 of the size in bytes: the number of address bits inside the page.
    pub const fn bits(self) -> u32 {
        self.0.trailing_zeros()
    }
}
